"""What a file is, by its content: for readers that were given another kind than they take.

What comes of it is for messages. Nothing here trusts a file: HDF5 is looked at in a process with
limits.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import zipfile
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from .confined import confined
from .messages import InputError
from .reading import looks_like_text, open_file


class FileKind(NamedTuple):
    """A kind of files: its name, and what to do with one, in which `{}` is its path."""

    name: str
    remedy: str = "give another file"


RESULTS = FileKind(
    "a results file of emuchain",
    "`emuchain show {}` prints it, `retime` and `report` take it, and `train --init {}` its"
    " weights",
)
CHECKPOINT = FileKind(
    "a checkpoint of emuchain",
    "`emuchain train --resume {}` resumes from it; `evaluate`, `export` and `train --init` take its"
    " weights",
)
SAFETENSORS = FileKind(
    "a safetensors file", "`emuchain train NETWORK --init {}` begins with its weights"
)
ONNX = FileKind(
    "an ONNX file",
    "`emuchain network {}` shows it, and `train NETWORK --init {}` begins with its weights",
)
BROKEN_ZIP = FileKind(
    "a ZIP archive that is damaged or truncated", "take an earlier copy, or write it again"
)
TORCH = FileKind(
    "a file of torch.save",
    "`emuchain train NETWORK --init {}` begins with the weights of a state_dict; a model is taken by"
    " `torch.onnx.export`, or from your code as FILE.py:FUNCTION",
)
_PICKLE = FileKind(
    "a pickle",
    "it may run code, and emuchain reads none; write its arrays as .npz, .h5 or .safetensors",
)
_KERAS = FileKind("a Keras file", "write the model as ONNX (tf2onnx), for `train --init`")
IMAGES = FileKind("an HDF5 file with images and labels", "`emuchain train --data {}` trains on it")
_HDF5 = FileKind(
    "an HDF5 file of another program", "`emuchain train --out run.h5` writes a results file"
)
NPZ = FileKind(
    "a NumPy archive",
    "with `images` and `labels` it is for `--data`; weights are taken from .safetensors",
)
_NPY = FileKind("a NumPy array", "images and labels are taken from .npz, weights from .safetensors")
_PACKED = FileKind("a compressed file", "unpack it first")
_ZIP = FileKind("a ZIP archive of another program", "unpack it first")
_EMPTY = FileKind(
    "an empty file", "what should have written it has not; give another file, or write it again"
)
_POINTER = FileKind("a pointer of Git LFS", "`git lfs pull` fetches the file itself")
_PAGE = FileKind("a web page", "a download brought a page in place of the file; download it again")
TEXT = FileKind("a text file")
_PICTURE = FileKind("a picture")
OTHER = FileKind("a file of a kind that emuchain does not know")

HDF5_HEAD, ZIP_HEAD = b"\x89HDF\r\n\x1a\n", b"PK\x03\x04"
_HEADS = (
    (b"PK\x05\x06", _ZIP), (b"\x93NUMPY", _NPY), (b"\x1f\x8b", _PACKED), (b"BZh", _PACKED), (b"\xfd7zXZ\0", _PACKED),
    (b"\x28\xb5\x2f\xfd", _PACKED), (b"7z\xbc\xaf", _PACKED), (b"Rar!", _PACKED), (b"\x89PNG", _PICTURE),
    (b"\xff\xd8\xff", _PICTURE), (b"GIF8", _PICTURE), (b"version https://git-lfs.github.com/", _POINTER),
)  # fmt: skip
_TORCH_MAGIC = b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_ONNX = re.compile(rb"\x08[\x01-\x20](?:[\x12\x1a\x22\x32\x3a\x42\x72\xa2]|\x28[\x00-\x7f])")
_WEB = re.compile(rb"\s*<(?:!doctype|html|\?xml)", re.IGNORECASE)
_HEAD_BYTES, _MOST_BYTES, _SECONDS = 4096, 2**28, 10


def kind_of(path: str | os.PathLike[str]) -> FileKind:
    """Return what a file is.

    Raises:
        OSError: it cannot be opened, or is no regular file; `strerror` says why.
    """
    with open_file(path) as file:
        head, size = file.read(_HEAD_BYTES), os.fstat(file.fileno()).st_size
        if head.startswith(ZIP_HEAD):
            return _kind_of_zip(file)
    if not head:
        return _EMPTY
    if head.startswith(HDF5_HEAD):
        return _confined_kind(os.fspath(path))
    for begin, kind in _HEADS:
        if head.startswith(begin):
            return kind
    if re.match(rb"\x80[\x02-\x05]", head):
        return TORCH if _TORCH_MAGIC in head[:64] else _PICKLE
    if head[8:9] == b"{" and 2 <= int.from_bytes(head[:8], "little") <= size - 8:
        return SAFETENSORS
    if _ONNX.match(head):
        return ONNX
    if _WEB.match(head):
        return _PAGE
    return TEXT if looks_like_text(head) else OTHER


def other_kind(path: str | os.PathLike[str], blame: str, denial: str) -> InputError:
    """Return the error for a file that is not what a reader takes, by what it is; see `unlike`."""
    try:
        kind = kind_of(path)
    except (OSError, ValueError) as error:
        return InputError(f"{blame}: cannot be read: {getattr(error, 'strerror', None) or error}")
    return unlike(kind, path, blame, denial)


def unlike(kind: FileKind, path: str | os.PathLike[str], blame: str, denial: str) -> InputError:
    """Return the error for a file of a kind that a reader does not take.

    `blame` begins its message; `denial` is what the file is not: "not a checkpoint".
    """
    remedy = kind.remedy.replace("{}", shlex.quote(os.fspath(path)))
    return InputError(f"{blame}: {denial}, but {kind.name}; {remedy}")


def kind_of_hdf5(file: Any) -> FileKind:
    """Return what an open HDF5 file is, by names at its root alone."""
    if "format" in file.attrs and "history" in file and "config" in file:
        return RESULTS
    if "keras_version" in file.attrs or "model_weights" in file or "layer_names" in file.attrs:
        return _KERAS
    return IMAGES if "images" in file and "labels" in file else _HDF5


def _confined_kind(path: str) -> FileKind:
    kinds = (RESULTS, _KERAS, IMAGES, _HDF5)

    def read() -> dict[str, np.ndarray]:
        import h5py

        with h5py.File(path, "r") as file:
            return {"kind": np.array(kinds.index(kind_of_hdf5(file)))}

    with contextlib.suppress(InputError):
        return kinds[int(confined(read, path, most_bytes=_MOST_BYTES, seconds=_SECONDS)["kind"])]
    return FileKind(
        "an HDF5 file that cannot be opened", "another program writes it, or it is damaged"
    )


def _kind_of_zip(file: BinaryIO) -> FileKind:
    try:
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
    except (OSError, ValueError, EOFError, NotImplementedError, zipfile.BadZipFile):
        return BROKEN_ZIP
    if "checkpoint.json" in names:
        return CHECKPOINT
    if any(name.rpartition("/")[2] == "data.pkl" for name in names):
        return TORCH
    if "model.weights.h5" in names:
        return _KERAS
    return NPZ if names and all(name.endswith(".npy") for name in names) else _ZIP
