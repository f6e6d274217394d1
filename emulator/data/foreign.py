"""Data in layouts that are not read, and what to give in their place."""

from __future__ import annotations

import collections
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from .files import shown
from .listing import SUFFIXES, is_folder

_LOOKED_AT = 200  # entries of a folder, and folders in all
_DEPTH = 3
_ARRAYS = "numpy.savez('own.npz', images=…, labels=…), images as uint8"
_BY_CLASS = "images in a folder for each class"


class _Kind(NamedTuple):
    """Files with these endings; what they are, and what to do."""

    endings: tuple[str, ...]
    what: str
    instead: str


_KINDS = (
    _Kind(
        (".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".zip", ".7z", ".rar"),
        "an archive",
        "unpack it, and give the folder",
    ),
    _Kind((".parquet", ".arrow"), "a table of Hugging Face or Arrow", f"write its columns with {_ARRAYS}"),
    _Kind((".npy",), "a single array of NumPy", f"put arrays together: {_ARRAYS}"),
    _Kind((".mat",), "a file of MATLAB", f"read it with scipy.io.loadmat, and write {_ARRAYS}"),
    _Kind((".pt", ".pth", ".pkl", ".pickle"), "a pickle, which could run code", f"write {_ARRAYS}"),
    _Kind((".tfrecord", ".tfrecords", ".rec", ".lmdb", ".mdb"), "a container of records", f"write {_ARRAYS}"),
    _Kind((".csv", ".tsv", ".json", ".jsonl", ".xml"), "a table or a list", f"give {_BY_CLASS}, or write {_ARRAYS}"),
    _Kind(SUFFIXES, "a single image", "give the folder that has a folder of images for each class"),
)
_PARTS_OF_SETS = ("-ubyte", "-ubyte.gz", "data_batch_", "test_batch", "batches.meta")


def advice_on_file(path: Path) -> str | None:
    """Return what a file is that is not read, and what to give in its place; None if that is not known."""
    name = path.name.lower()
    if "ilsvrc2012_img_val" in name:
        return (
            "ImageNet's validation images, without their classes; unpack them into a folder for each class, and give"
            " the folder with `train` and `val`"
        )
    if path.suffix in ("", ".bin") and (said := _of_set(*next(_listed(path.parent)))) is not None:
        return f"one file of a data set: {said}"
    if any(name.endswith(mark) if mark.startswith("-") else name.startswith(mark) for mark in _PARTS_OF_SETS):
        return f"one file of a data set; give its folder, {shown(path.parent)}"
    kind = _kind_of(name)
    return None if kind is None else f"{kind.what}; {kind.instead}"


def advice_on_folder(root: Path) -> str | None:
    """Return what is in a folder, or below it, that is not read, and what to give in its place.

    None if it has images below, or nothing of a kind that is known.
    """
    listed = list(_listed(root))
    for folder, names in listed:
        said = _of_set(folder, names)
        if said is not None:
            return said
    if any(_kind_of(name.lower()) is _KINDS[-1] for folder, names in listed for name in names if folder != root):
        return None
    for folder, names in listed:
        for name in sorted(name for name in names if not name.startswith(".")):
            if name.lower().endswith((".npz", ".h5", ".hdf5", ".txt")) and len(names) == 1:
                return f"holds {shown(name)}; give {shown(folder / name)} itself"
            kind = _kind_of(name.lower())
            if kind is not None and kind is not _KINDS[-1]:
                return f"holds {shown(name)}, {kind.what}; {kind.instead}"
            if kind is not None:
                return (
                    f"has images ({shown(name)}), but no folder for each class; put each into the folder of its class"
                )
    return None


def _of_set(folder: Path, names: set[str]) -> str | None:
    """Return what is said of a published set in a layout that is not read."""
    if {"train", "test", "meta"} <= names or {"train.bin", "test.bin"} <= names:
        return (
            f"{shown(folder.name)} is CIFAR-100, which is not read, but CIFAR-10 is; read `data` (uint8, reshaped to"
            f" -1,3,32,32) and `fine_labels` of both files, and write numpy.savez('own.npz', images=…, labels=…,"
            " test_images=…, test_labels=…)"
        )
    if names & {"dataset_info.json", "dataset_dict.json", "state.json"}:
        return f"{shown(folder.name)} is a data set of Hugging Face; write its columns with {_ARRAYS}"
    if {"training.pt", "test.pt"} <= names:
        return f"{shown(folder.name)} holds MNIST as pickles of PyTorch; give the folder `raw` beside it"
    return None


def _kind_of(name: str) -> _Kind | None:
    return next((kind for kind in _KINDS if name.endswith(kind.endings)), None)


def _listed(root: Path) -> Iterator[tuple[Path, set[str]]]:
    """Yield a folder and those below it, but not all of many, each with the names of files in it."""
    waiting = collections.deque([(root, 0)])
    for _ in range(_LOOKED_AT):
        if not waiting:
            return
        folder, depth = waiting.popleft()
        names = set()
        with os.scandir(folder) as entries:
            for entry in itertools.islice(entries, _LOOKED_AT):
                if not is_folder(entry):
                    names.add(entry.name)
                elif depth < _DEPTH and not entry.name.startswith("."):
                    waiting.append((Path(entry.path), depth + 1))
        yield folder, names
