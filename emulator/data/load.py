"""Finding a data set: `shapes` or `text`, a directory in one of the known layouts, or a file of a
known kind.

For data in layouts that are not read, the error says what to give in their place.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..common import TEXT, InputError, kind_of, plural, typed
from . import cifar, mnist, shapes, text
from .dataset import Dataset, Normalisation
from .files import other_data, shown
from .folder import SUFFIXES, is_folder
from .lazy import Images, LazyImages
from .reading import Preparation, Reading

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
    _Kind(
        (".arrow",),
        "a table of Hugging Face or Arrow",
        f"write its columns with {_ARRAYS}, or inputs=…, targets=…",
    ),
    _Kind((".npy",), "a single array of NumPy", f"put arrays together: {_ARRAYS}"),
    _Kind((".mat",), "a file of MATLAB", f"read it with scipy.io.loadmat, and write {_ARRAYS}"),
    _Kind((".pt", ".pth", ".pkl", ".pickle"), "a pickle, which could run code", f"write {_ARRAYS}"),
    _Kind(
        (".tfrecord", ".tfrecords", ".rec", ".lmdb", ".mdb"),
        "a container of records",
        f"write {_ARRAYS}",
    ),
    _Kind((".csv", ".tsv", ".parquet"), "a table", "give the file itself"),
    _Kind(
        (".json", ".jsonl", ".xml"),
        "a list",
        f"give {_BY_CLASS}, or write {_ARRAYS}",
    ),
    _Kind(SUFFIXES, "a single image", "give the folder that has a folder of images for each class"),
)
_PARTS_OF_SETS = ("-ubyte", "-ubyte.gz", "data_batch_", "test_batch", "batches.meta")


def advice_on_file(path: Path) -> str | None:
    """Return what a file is that is not read, and what to give in its place; None if that is not
    known.
    """
    name = path.name.lower()
    if "ilsvrc2012_img_val" in name:
        return (
            "ImageNet's validation images, without their classes; unpack them into a folder for"
            " each class, and give the folder with `train` and `val`"
        )
    if path.suffix in ("", ".bin") and (said := _of_set(*next(_listed(path.parent)))) is not None:
        return f"one file of a data set: {said}"
    if any(
        name.endswith(mark) if mark.startswith("-") else name.startswith(mark)
        for mark in _PARTS_OF_SETS
    ):
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
    if any(
        _kind_of(name.lower()) is _KINDS[-1]
        for folder, names in listed
        for name in names
        if folder != root
    ):
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
                    f"has images ({shown(name)}), but no folder for each class; put each into the"
                    " folder of its class"
                )
    return None


def _of_set(folder: Path, names: set[str]) -> str | None:
    """Return what is said of a published set in a layout that is not read."""
    if {"train", "test", "meta"} <= names or {"train.bin", "test.bin"} <= names:
        return (
            f"{shown(folder.name)} is CIFAR-100, which is not read, but CIFAR-10 is; read `data`"
            " (uint8, reshaped to -1,3,32,32) and `fine_labels` of both files, and write"
            " numpy.savez('own.npz', images=…, labels=…, test_images=…, test_labels=…)"
        )
    if names & {"dataset_info.json", "dataset_dict.json", "state.json"}:
        return (
            f"{shown(folder.name)} is a data set of Hugging Face; give"
            " `datasets.load_from_disk(FOLDER)` to emuchain.train(data=…) in Python, or write"
            " numbers with its `to_parquet`"
        )
    if {"training.pt", "test.pt"} <= names:
        return (
            f"{shown(folder.name)} holds MNIST as pickles of PyTorch; give the folder `raw`"
            " beside it"
        )
    return None


def _kind_of(name: str) -> _Kind | None:
    return next((kind for kind in _KINDS if name.endswith(kind.endings)), None)


def _listed(root: Path) -> Iterator[tuple[Path, set[str]]]:
    """Yield a folder and those below it, but not all of many, each with the names of files in
    it.
    """
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


STEPS = 64
"""Characters of a window of text, where nothing says another number."""


class Description(NamedTuple):
    """What is known of a data set without its samples.

    `targets` is the shape of a sample's label, `numbers` says that targets are numbers, `differs`
    that samples do in length, and `by_targets` and `symbols` are those of `Dataset`.
    """

    n_train: int
    n_test: int
    shape: tuple[int, int, int]
    n_classes: int
    symbols: int = 0
    targets: tuple[int, ...] = ()
    numbers: bool = False
    by_targets: bool = False
    differs: bool = False

    @classmethod
    def of(cls, data: Dataset) -> Description:
        """Return the description of a loaded data set."""
        labels, differs = data.train_labels, data.train_lengths is not None
        counts = data.n_train, data.n_test, data.shape, data.n_classes, data.symbols
        return cls(*counts, labels.shape[1:], labels.dtype.kind == "f", data.by_targets, differs)


class _Layout(NamedTuple):
    title: str
    folders: tuple[str, ...]  # below the given directory, where the files may be instead
    recognise: Callable[[Path], bool]
    load: Callable[[Path], Dataset]
    describe: Callable[[Path], tuple[Any, ...]] | None  # None if the data set must be loaded for it
    files: tuple[str, ...]  # patterns of their names


_OF_CIFAR = ("data_batch_*", "test_batch*", "batches.meta*")
_OF_MNIST = ("train-images*", "train-labels*", "t10k-images*", "t10k-labels*")
_LAYOUTS = (
    _Layout(
        "CIFAR-10",
        ("cifar-10-batches-bin",),
        cifar.is_binary,
        cifar.load_binary,
        cifar.describe_binary,
        _OF_CIFAR,
    ),
    _Layout(
        "CIFAR-10", ("cifar-10-batches-py",), cifar.is_pickled, cifar.load_pickled, None, _OF_CIFAR
    ),
    _Layout(
        "MNIST",
        ("mnist", "MNIST/raw", "MNIST", "raw"),
        mnist.is_mnist,
        mnist.load_mnist,
        mnist.describe_mnist,
        _OF_MNIST,
    ),
)
_UNDERSTOOD = (
    "CIFAR-10 binary (data_batch_1.bin ... or cifar-10-batches-bin/), CIFAR-10 pickled"
    " (data_batch_1 ... or cifar-10-batches-py/), MNIST (train-images-idx3-ubyte[.gz] ... or"
    " mnist/), or a folder of images for each class"
)
_Loader = Callable[[Path, Reading], Dataset]


def _load_folder(folder: Path, reading: Reading) -> Dataset:
    from .folder import load_folder

    return load_folder(folder, reading)


def _load_npz(path: Path, reading: Reading) -> Dataset:
    from .arrays import load_npz

    return load_npz(path, reading)


def _load_hdf5(path: Path, reading: Reading) -> Dataset:
    from .arrays import load_hdf5

    return load_hdf5(path, reading)


def _load_table(path: Path, reading: Reading) -> Dataset:
    from .own.tables import load_table

    return load_table(path, reading)


_FILES: dict[str, _Loader] = {
    **{".npz": _load_npz, ".h5": _load_hdf5, ".hdf5": _load_hdf5},
    **dict.fromkeys((".csv", ".tsv", ".parquet"), _load_table),
}


@typed
def load_data(
    where: str | os.PathLike[str],
    steps: int = STEPS,
    *,
    lines: bool = False,
    reading: Reading | None = None,
    enough: tuple[int | None, int | None] = (None, None),
) -> Dataset:
    """Return the data set `shapes` or `text`, or that in the directory or file `where` (`./shapes`
    is a directory).

    A file is a text, whose name ends in .txt, or has images: .npz, .h5, .hdf5. Samples of texts,
    `text` too, are windows of `steps` characters, or `lines`. `reading` says how images are read.
    `enough` says how many training and test samples will be used, None for all: no more are drawn,
    but files are read whole.

    Raises InputError when there is no such directory, when it holds no known layout, and when a
    file in it is missing, cut off or otherwise damaged.
    """
    where, reading = os.fspath(where), reading or Reading()
    for name, number in (("steps", steps), ("enough", enough[0]), ("enough", enough[1])):
        if number is not None and number < 1:
            raise InputError(f"`{name}`: {number} is too few; should be at least 1")
    if text.is_text(where):
        reading.refuse_for_text()
        return text.load_text(where, steps, lines=lines, **reading.of_text)
    reading.check()
    reading.refuse_of_text()
    if where == "shapes":
        return _prepared(
            shapes.draw(*map(_at_most, (shapes.N_TRAIN, shapes.N_TEST), enough)), reading
        )
    folder, layout = _find(where)
    if isinstance(layout, _Layout):
        return _prepared(layout.load(folder), reading)
    with _about(where):
        return _prepared(layout(folder, reading), reading)


def _at_most(available: int, wanted: int | None) -> int:
    return available if wanted is None else min(available, wanted)


def describe_data(
    where: str, steps: int = STEPS, *, lines: bool = False, reading: Reading | None = None
) -> Description:
    """Return the description of `load_data(…)`, if possible from sizes and headers alone.

    Raises InputError as `load_data` does, for the files that it reads.
    """
    if reading is None or reading == Reading(seed=reading.seed):
        if where == "shapes":
            return Description(shapes.N_TRAIN, shapes.N_TEST, shapes.SHAPE, len(shapes.CLASSES))
        if not text.is_text(where):
            folder, layout = _find(where)
            if isinstance(layout, _Layout) and layout.describe is not None:
                return Description(*layout.describe(folder))
    return Description.of(load_data(where, steps, lines=lines, reading=reading))


def data_files(where: str) -> Iterator[str | Path]:
    """Yield the files of which `load_data` reads a data set; of a folder of images, each that may
    be one.

    Raises InputError and OSError where there is no data set.
    """
    if where in ("shapes", text.SENTENCES):
        return
    if not os.path.isdir(where):
        yield where
        return
    folder, layout = _look_in(Path(where))
    if isinstance(layout, _Layout):
        for pattern in layout.files:
            yield from folder.glob(pattern)
    else:
        yield from _images_below(folder)


def _images_below(folder: Path) -> Iterator[str]:
    """Yield all images below a folder, by links, too, each folder once."""
    from .folder import SUFFIXES

    seen = set[tuple[int, int]]()
    for below, folders, names in os.walk(folder, followlinks=True):
        status = os.stat(below)
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        yield from (os.path.join(below, name) for name in names if name.lower().endswith(SUFFIXES))


def _prepared(data: Dataset, reading: Reading) -> Dataset:
    """Return a set with its images resized, cropped, augmented and normalised as they should be."""
    given = None
    channels = data.shape[0]
    if reading.mean:
        if len(reading.mean) != channels:
            raise InputError(
                f"`mean`: {len(reading.mean)} numbers, but images have"
                f" {plural(channels, 'channel')}; give as many"
            )
        given = Normalisation(
            *(255 * np.array(values, np.float32) for values in (reading.mean, reading.std))
        )
    preparation = Preparation(reading.resize, reading.crop_size, reading.augment)

    def prepared(images: Images, name: str, seed: int | None) -> Images:
        if isinstance(images, LazyImages):
            return dataclasses.replace(images, preparation=preparation, seed=seed)
        if not reading.prepares:
            return images
        from .own import ArrayPictures

        pictures = ArrayPictures.of(images, f"{name} image", data.name, "first")
        size = preparation.size(pictures.sizes, data.name)
        return LazyImages(pictures, preparation, size, np.arange(len(pictures)), seed)

    train = prepared(data.train_images, "a training", reading.seed)
    return dataclasses.replace(
        data,
        train_images=train,
        test_images=prepared(data.test_images, "a test", None),
        given=given,
    )


@contextlib.contextmanager
def _about(where: str) -> Iterator[None]:
    """Turn what the system says about a file into an InputError."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{shown(error.filename or where)}: cannot be read ({error.strerror or error})"
        ) from None


def _find(where: str) -> tuple[Path, _Layout | _Loader]:
    """Return the folder that holds a data set, `where` itself or one below it, and its layout; or a
    file's loader.
    """
    try:
        return _look_in(Path(where))
    except OSError as error:
        raise InputError(
            f"{shown(where)}: cannot be read ({error.strerror}); give a readable directory"
        ) from None


def _look_in(root: Path) -> tuple[Path, _Layout | _Loader]:
    if not os.path.exists(root):
        raise InputError(
            f"{root}: no such directory; give `shapes`, `text`, or a directory with a data set"
        )
    if root.suffix.lower() in _FILES and not root.is_dir():
        return root, _FILES[root.suffix.lower()]
    if not root.is_dir():
        advice = advice_on_file(root)
        if advice is not None:
            raise InputError(f"{shown(root)}: is {advice}")
        if kind_of(root) is not TEXT:
            raise other_data(root, f"no data set, whose name ends in .txt, {' or '.join(_FILES)}")
        raise InputError(
            f"{root}: is a file; give the directory it is in, or a text, whose name ends in .txt,"
            f" or images, in a file whose name ends in {' or '.join(_FILES)}"
        )
    here = [(root, layout) for layout in _LAYOUTS if layout.recognise(root)]
    below = [
        (root / folder, layout)
        for layout in _LAYOUTS
        for folder in layout.folders
        if layout.recognise(root / folder) and not (root / folder).samefile(root)
    ]
    candidates = here or below
    if not candidates:
        advice = advice_on_folder(root)
        if advice is not None:
            raise InputError(f"{shown(root)}: {advice}")
        if any(entry.is_dir() and not entry.name.startswith(".") for entry in root.iterdir()):
            return root, _load_folder
        state = "holds no known data set" if any(root.iterdir()) else "is empty"
        raise InputError(f"{root}: {state}; known layouts: {_UNDERSTOOD}")
    if len({layout.title for _, layout in candidates}) > 1:
        names = " and ".join(f"{layout.title} ({place})" for place, layout in candidates)
        raise InputError(f"{root}: holds {names}; give the directory of one of them")
    return candidates[0]
