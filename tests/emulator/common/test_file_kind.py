"""What a file is, by its content: files that other programs write, and those of emuchain, under
names that mislead.
"""

from __future__ import annotations

import gzip
import io
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from emuchain.emulator.common import InputError, kind_of, other_kind


def zipped(*names: str) -> bytes:
    """An archive with empty members."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, b"")
    return file.getvalue()


def saved(save: Callable[[io.BytesIO], object]) -> bytes:
    """What a function writes into a file."""
    file = io.BytesIO()
    save(file)
    return file.getvalue()


def of_torch(**how: bool) -> bytes:
    """What torch.save writes."""
    torch = pytest.importorskip("torch")
    return saved(lambda file: torch.save({"weight": torch.zeros(3)}, file, **how))


def of_safetensors() -> bytes:
    """What the package safetensors writes."""
    library = pytest.importorskip("safetensors.numpy")
    return bytes(library.save({"weight": np.zeros(3, np.float32)}))


def of_onnx() -> bytes:
    """What the package onnx writes."""
    onnx = pytest.importorskip("onnx")
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Relu", ["x"], ["x2"])], "g", [value], [value]
    )
    return bytes(onnx.helper.make_model(graph).SerializeToString())


def hdf5(**attributes: object) -> bytes:
    """An HDF5 file with attributes, and with what else has this name as an empty group."""

    def save(file: io.BytesIO) -> None:
        with h5py.File(file, "w") as into:
            for name, value in attributes.items():
                if value is None:
                    into.create_group(name)
                else:
                    into.attrs[name] = value

    return saved(save)


CONTENTS: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "an empty file"),
    "text": (lambda: b"hello\n", "a text file"),
    "latin": (lambda: "Größe\n".encode("latin-1"), "a text file"),
    "utf-16": (lambda: "hello".encode("utf-16"), "a text file"),
    "torch": (of_torch, "a file of torch.save"),
    "old torch": (lambda: of_torch(_use_new_zipfile_serialization=False), "a file of torch.save"),
    "pickle": (lambda: pickle.dumps([1]), "a pickle"),
    "safetensors": (of_safetensors, "a safetensors file"),
    "onnx": (of_onnx, "an ONNX file"),
    "npy": (lambda: saved(lambda file: np.save(file, np.zeros(3))), "a NumPy array"),
    "npz": (lambda: saved(lambda file: np.savez(file, a=np.zeros(3))), "a NumPy archive"),
    "keras": (lambda: zipped("metadata.json", "config.json", "model.weights.h5"), "a Keras file"),
    "old keras": (lambda: hdf5(keras_version="2.9.0", model_weights=None), "a Keras file"),
    "images": (lambda: hdf5(images=None, labels=None), "an HDF5 file with images and labels"),
    "hdf5": (lambda: hdf5(version=3), "an HDF5 file of another program"),
    "results": (lambda: hdf5(format=1, config=None, history=None), "a results file of emuchain"),
    "checkpoint": (
        lambda: zipped("layers/0/weight/value.npy", "checkpoint.json"),
        "a checkpoint of emuchain",
    ),
    "zip": (lambda: zipped("word/document.xml"), "a ZIP archive of another program"),
    "half a zip": (
        lambda: zipped("checkpoint.json")[:40],
        "a ZIP archive that is damaged or truncated",
    ),
    "half hdf5": (lambda: hdf5(version=3)[:300], "an HDF5 file that cannot be opened"),
    "packed": (lambda: gzip.compress(b"hello"), "a compressed file"),
    "pointer": (
        lambda: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
        "a pointer of Git LFS",
    ),
    "page": (lambda: b"<!DOCTYPE html>\n<html>", "a web page"),
    "noise": (lambda: bytes(range(1, 255)), "a file of a kind that emuchain does not know"),
}


@pytest.mark.parametrize("content", CONTENTS)
def test_kinds(tmp_path: Path, content: str) -> None:
    make, name = CONTENTS[content]
    path = tmp_path / "run.h5"  # whatever it is called
    path.write_bytes(make())
    assert kind_of(path).name == name
    said = str(other_kind(path, "it", "not a poem"))
    assert (
        said.startswith(f"it: not a poem, but {name}; ") and "{}" not in said and "\n" not in said
    )


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, said in (
        (tmp_path, "is a folder"),
        (tmp_path / "pipe", "is a pipe"),
        (tmp_path / "none", "No such file"),
    ):
        assert said in str(other_kind(path, "it", "not a poem"))
        with pytest.raises(OSError):
            kind_of(path)


def test_a_path_with_spaces_is_to_be_pasted(tmp_path: Path) -> None:
    path = tmp_path / "two words.ckpt"
    path.write_bytes(zipped("checkpoint.json"))
    error = other_kind(path, "it", "not a poem")
    assert isinstance(error, InputError)
    assert f"`emuchain train --resume '{path}'`" in str(error)
