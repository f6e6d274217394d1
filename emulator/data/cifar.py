"""CIFAR-10 in its two official layouts: binary records, and pickles, which are not trusted.

A pickle is a program, and a plain `pickle.load` runs whatever it says. Two measures prevent that
here:

- the operations are scanned first, and only those that occur in the CIFAR-10 files are admitted;
- the few functions that these files name are replaced by stand-ins, which build arrays of bytes and
  nothing else.
"""

import io
import pickle
import pickletools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..common import InputError, plural
from .dataset import Dataset
from .files import file_size, read_file

_OPERATIONS = """
    PROTO FRAME STOP MARK MEMOIZE PUT BINPUT LONG_BINPUT GET BINGET LONG_BINGET
    NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1
    STRING BINSTRING SHORT_BINSTRING UNICODE BINUNICODE SHORT_BINUNICODE BINBYTES SHORT_BINBYTES
    EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 LIST EMPTY_LIST APPEND APPENDS DICT EMPTY_DICT SETITEM SETITEMS
    GLOBAL STACK_GLOBAL REDUCE BUILD
""".split()
_STORES = ("PUT", "BINPUT", "LONG_BINPUT")


def unpickle(path: Path) -> dict[str, object]:
    """Return the dictionary in the pickle `path`, with its keys as str (bytes and str keys alike).

    The only objects that can occur are None, numbers, bytes, str, tuples, lists, dictionaries and
    arrays of uint8. Raises InputError when the file is damaged, is not a dictionary, or asks for
    anything else, which is never run.
    """
    data = read_file(path)
    try:
        _check_operations(data)
        # Python 2 wrote the official files, and its strings of pixels are no text.
        return _named(_Unpickler(io.BytesIO(data), encoding="bytes").load())
    except _RefusedError as refused:
        raise InputError(
            f"{path}: refused: the pickle asks for {str(refused)!a}, which CIFAR-10 files do not"
            " need"
        ) from None
    except Exception as error:  # a damaged pickle can fail in any way
        reason = " ".join(str(error).split())[:100] or type(error).__name__
        raise InputError(
            f"{path}: not a whole CIFAR-10 pickle ({reason!a}); fetch it again"
        ) from None


class _RefusedError(Exception):
    """The pickle asks for something not admitted; the message names it."""


def _named(content: object) -> dict[str, object]:
    """Return `content` with str keys and finished arrays."""
    if not isinstance(content, dict) or not all(isinstance(key, str | bytes) for key in content):
        raise TypeError("no dictionary with names as keys")
    names = [key.decode("latin1") if isinstance(key, bytes) else key for key in content]
    values = [
        value.array if isinstance(value, _ArrayState) else value for value in content.values()
    ]
    return dict(zip(names, values, strict=True))


def _check_operations(data: bytes) -> None:
    """Refuse operations that are not admitted, sizes past the end of the file, and memo places that
    skip ahead.

    Memo places must be checked because the unpickler makes its memo as long as the largest place
    named.
    """
    for count, (operation, argument, _) in enumerate(pickletools.genops(data)):
        if operation.name not in _OPERATIONS:
            raise _RefusedError(operation.name)
        if operation.name in _STORES and (argument is None or argument > count):
            raise _RefusedError(f"{operation.name} {argument}")


class _StandIn:
    """An object without attributes to set, so that a pickle's BUILD cannot change it for the next
    file.
    """

    __slots__ = ()

    def __setstate__(self, state: object) -> NoReturn:
        raise _RefusedError("BUILD of a function")


class _Encode(_StandIn):
    """`_codecs.encode`, with which Python 3 writes bytes at protocol 2."""

    def __call__(self, text: object, encoding: object = "utf-8") -> bytes:
        if isinstance(text, str) and encoding in ("latin1", b"latin1"):
            return text.encode("latin1")
        raise _RefusedError("_codecs.encode of something other than latin1 text")


class _DtypeState:
    """The result of `numpy.dtype("u1")`; its state may not define fields."""

    __slots__ = ()

    def __setstate__(self, state: object) -> None:
        if not (isinstance(state, tuple) and state[2:5] == (None, None, None)):
            raise _RefusedError("numpy.dtype with fields")


class _Dtype(_StandIn):
    """`numpy.dtype`, for unsigned bytes."""

    def __call__(self, code: object, *_: object) -> _DtypeState:
        if code in ("u1", b"u1"):
            return _DtypeState()
        raise _RefusedError(
            f"numpy.dtype({code!a:.40})"
            if isinstance(code, str | bytes)
            else "an unnamed numpy.dtype"
        )


class _ArrayState:
    """The result of `_reconstruct`: an array of uint8, once its state is set."""

    __slots__ = ("array",)
    array: NDArray[np.uint8]

    def __setstate__(self, state: object) -> None:
        if not isinstance(state, tuple):
            raise _RefusedError("an array of an unknown state")
        _, shape, dtype, fortran, data = state
        if not isinstance(dtype, _DtypeState) or not isinstance(data, bytes):
            raise _RefusedError("an array of something other than bytes")
        self.array = np.ascontiguousarray(
            np.frombuffer(data, np.uint8).reshape(shape, order="F" if fortran else "C")
        )


class _Reconstruct(_StandIn):
    """`numpy.core.multiarray._reconstruct`."""

    def __call__(self, *_: object) -> _ArrayState:
        return _ArrayState()


class _Ndarray(_StandIn):
    """`numpy.ndarray`, which occurs only as an argument of `_reconstruct`."""


_ADMITTED: Mapping[str, _StandIn] = {
    "_codecs.encode": _Encode(),
    "numpy.dtype": _Dtype(),
    "numpy.ndarray": _Ndarray(),
    "numpy.core.multiarray._reconstruct": _Reconstruct(),
    "numpy._core.multiarray._reconstruct": _Reconstruct(),
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        admitted = _ADMITTED.get(f"{module}.{name}")
        if admitted is None:
            raise _RefusedError(f"{module}.{name}")
        return admitted

    def persistent_load(self, pid: object) -> NoReturn:
        raise _RefusedError("a persistent object")


CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SHAPE = (3, 32, 32)
TRAIN = tuple(f"data_batch_{i}" for i in range(1, 6))
TEST = "test_batch"

_PIXELS = 3 * 32 * 32
_RECORD = 1 + _PIXELS  # label, then the red, green and blue planes, row by row
_BATCH = 10_000  # records in an official file

Batch = tuple[NDArray[np.uint8], NDArray[np.int64]]  # pixels (n, 3072) and labels (n,)


def is_binary(folder: Path) -> bool:
    """Return whether any file of the binary layout is in `folder`."""
    return any((folder / f"{name}.bin").exists() for name in (*TRAIN, TEST))


def is_pickled(folder: Path) -> bool:
    """Return whether any file of the pickled layout is in `folder`."""
    return any((folder / name).exists() for name in (*TRAIN, TEST))


def load_binary(folder: Path) -> Dataset:
    """Load CIFAR-10 from the `.bin` files in `folder`, of any whole number of records each.

    Raises InputError when a file is missing, cut off, or holds an invalid label.
    """
    names = folder / "batches.meta.txt"
    classes = (
        _classes(names, read_file(names).decode("latin1").split()) if names.exists() else CLASSES
    )
    paths = [folder / f"{name}.bin" for name in (*TRAIN, TEST)]
    return _dataset(paths, [_read_binary(path) for path in paths], classes)


def load_pickled(folder: Path) -> Dataset:
    """Load CIFAR-10 from the pickles in `folder`, without trusting them.

    Raises InputError when a file is missing, damaged, or asks for more than arrays of bytes.
    """
    names = folder / "batches.meta"
    classes = _classes(names, unpickle(names).get("label_names")) if names.exists() else CLASSES
    paths = [folder / name for name in (*TRAIN, TEST)]
    return _dataset(paths, [_read_pickled(path) for path in paths], classes)


def describe_binary(folder: Path) -> tuple[int, int, tuple[int, int, int], int]:
    """Return (n_train, n_test, (c, h, w), n_classes) from the sizes of the files. Raises
    InputError.
    """
    paths = [folder / f"{name}.bin" for name in (*TRAIN, TEST)]
    counts = [_records(path, file_size(path)) for path in paths]
    _note(paths, counts)
    return sum(counts[:-1]), counts[-1], SHAPE, len(CLASSES)


def _dataset(paths: Sequence[Path], batches: Sequence[Batch], classes: tuple[str, ...]) -> Dataset:
    note = _note(paths, [len(labels) for _, labels in batches])
    *train, (test_pixels, test_labels) = batches
    train_pixels = np.concatenate([pixels for pixels, _ in train])
    train_labels = np.concatenate([labels for _, labels in train])
    return Dataset(
        "cifar10",
        train_pixels.reshape(-1, *SHAPE),
        train_labels,
        np.array(test_pixels, order="C").reshape(-1, *SHAPE),
        test_labels,
        classes,
        note,
    )


def _note(paths: Sequence[Path], counts: Sequence[int]) -> str:
    """Return what to say about a set that is smaller than the official one, whose files are all of
    one size.

    Raises:
        InputError: one file alone is short, so the set was not copied to its end.
    """
    if _BATCH in counts and min(counts) < _BATCH:
        path, count = next(
            (path, count) for path, count in zip(paths, counts, strict=True) if count < _BATCH
        )
        raise InputError(
            f"{path}: cut off: {plural(count, 'image')} found, {_BATCH:,} expected, as in"
            f" {paths[counts.index(_BATCH)].name}; fetch it again"
        )
    if min(counts) == max(counts) == _BATCH:
        return ""
    held = ", ".join(f"{count:,}" for count in counts)
    return f"not the official set: its files hold {held} images, in place of {_BATCH:,} each"


def _read_binary(path: Path) -> Batch:
    data = read_file(path)
    records = np.frombuffer(data, np.uint8).reshape(_records(path, len(data)), _RECORD)
    return records[:, 1:], _labels(path, records[:, 0].tolist())


def _records(path: Path, size: int) -> int:
    """Return the number of records in a file of `size` bytes. Raises InputError."""
    records, rest = divmod(size, _RECORD)
    if rest or not records:
        raise InputError(
            f"{path}: cut off: {size} bytes found, a multiple of {_RECORD} expected"
            f" ({_BATCH * _RECORD} in the official set)"
        )
    return records


def _read_pickled(path: Path) -> Batch:
    content = unpickle(path)
    pixels, labels = content.get("data"), content.get("labels")
    if (
        not isinstance(pixels, np.ndarray)
        or pixels.ndim != 2
        or pixels.shape[1] != _PIXELS
        or not len(pixels)
    ):
        array = f"uint8 of shape {pixels.shape}" if isinstance(pixels, np.ndarray) else "no array"
        raise InputError(f"{path}: `data`: {array} found, uint8 of shape (n, {_PIXELS}) expected")
    if (
        not isinstance(labels, list)
        or len(labels) != len(pixels)
        or not all(type(label) is int for label in labels)
    ):
        raise InputError(
            f"{path}: `labels`: a list of {len(pixels)} whole numbers expected, one for each image"
        )
    return pixels, _labels(path, labels)


def _labels(path: Path, labels: list[int]) -> NDArray[np.int64]:
    for place, label in enumerate(labels):
        if not 0 <= label < len(CLASSES):
            raise InputError(f"{path}: label {label:.6g} found in record {place}, 0 to 9 expected")
    return np.array(labels, np.int64)


def _classes(path: Path, names: object) -> tuple[str, ...]:
    """Return `names` as a tuple of str; raise InputError unless there are ten."""
    if not isinstance(names, list) or len(names) != len(CLASSES):
        raise InputError(f"{path}: the names of {len(CLASSES)} classes expected")
    decoded = [name.decode("latin1") if isinstance(name, bytes) else name for name in names]
    if not all(isinstance(name, str) and name.isprintable() for name in decoded):
        raise InputError(f"{path}: the names of {len(CLASSES)} classes expected")
    return tuple(decoded)
