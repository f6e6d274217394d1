"""Images and labels as arrays of a file, whatever its format: the required form, and the resulting data set."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..common import InputError, plural
from .dataset import Dataset
from .lazy import LazyImages
from .prepare import Preparation, Size
from .reading import Reading, split

IMAGES, LABELS, TEST_IMAGES, TEST_LABELS, CLASSES = "images", "labels", "test_images", "test_labels", "classes"
_FEW = (1, 3)  # channels that an axis is known by


class Samples(Protocol):
    """An array in a file, or in memory, whose items are read one by one."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of all items."""

    def __getitem__(self, number: int, /) -> Any: ...


@dataclass(frozen=True, eq=False)
class ArrayPictures:
    """Pictures that are the items of an array: (N, rows, columns), with channels behind the number or at the end."""

    samples: Samples
    channels: int
    sizes: Mapping[Size, str]
    channels_last: bool = False

    @classmethod
    def of(cls, samples: Samples, name: str, where: str, channels: str | None = None) -> ArrayPictures:
        """Return the pictures of an array that is called `name`, whose `channels` come "first" or "last".

        Raises:
            InputError: its shape is not one of images; or it does not tell where channels are, and nor does `channels`.
        """
        shape = tuple(samples.shape)
        if len(shape) not in (3, 4) or 0 in shape:
            raise InputError(
                f"{where}: `{name}` has shape {shape}; should be (N, rows, columns), (N, rows, columns, channels) or"
                " (N, channels, rows, columns)"
            )
        if len(shape) == 3:
            return cls(samples, 1, {(shape[1], shape[2]): name})
        if channels is None and (shape[1] in _FEW) == (shape[3] in _FEW):
            (one, *map_of_one), (*map_of_other, other) = shape[1:], shape[1:]
            ways = f"{one} of {map_of_one[0]}x{map_of_one[1]}, or last, {other} of {map_of_other[0]}x{map_of_other[1]}"
            raise InputError(
                f"{where}: `{name}` has shape {shape}: channels may come first, {ways}; say which by `channels`, as"
                " --channels last"
            )
        last = channels == "last" if channels is not None else shape[3] in _FEW
        size = (shape[1], shape[2]) if last else (shape[2], shape[3])
        return cls(samples, shape[3] if last else shape[1], {size: name}, last)

    def __len__(self) -> int:
        return int(self.samples.shape[0])

    def picture(self, number: int) -> NDArray[np.uint8]:
        """See `Pictures`."""
        item: NDArray[np.uint8] = self.samples[number]
        if item.ndim == 2:
            return item[:, :, None]
        return item if self.channels_last else item.transpose(1, 2, 0)


@dataclass(frozen=True, eq=False)
class ArrayFile:
    """What a file holds: names of arrays, and how to read images, labels and names of classes, all checked."""

    path: str
    name: str
    names: Collection[str]
    images: Callable[[str], Samples]
    labels: Callable[[str], NDArray[Any]]
    classes: Callable[[], list[str]]
    notes: list[str] = field(default_factory=list)


def load_arrays(file: ArrayFile, reading: Reading) -> Dataset:
    """Return the images of a file; they are read when they are needed.

    Raises:
        InputError: an array is missing, or has the wrong type or shape; a label is out of range.
    """
    has_test = TEST_IMAGES in file.names or TEST_LABELS in file.names
    needed = (IMAGES, LABELS, *((TEST_IMAGES, TEST_LABELS) if has_test else ()))
    missing = [name for name in needed if name not in file.names]
    if missing:
        names_there = ", ".join(sorted(file.names)[:8]) or "nothing"
        raise InputError(f"{file.path}: has no `{missing[0]}`, but {names_there}; `images` and `labels` are needed")
    names = file.classes() if CLASSES in file.names else None
    pictures, labels = _part(file, IMAGES, LABELS, reading.channels)
    classes = _classes(file.path, labels, names)
    preparation = Preparation(reading.resize, reading.crop_size)
    size = preparation.size(pictures.sizes, file.path)
    if not has_test:
        train, test = split(labels, len(classes), reading.test_share, reading.split_seed, file.path)
        note = (
            f"{plural(len(test), 'image')}, a share of {reading.test_share:g} of each class,"
            f" {'is' if len(test) == 1 else 'are'} the test set"
        )
        images, test_images = (LazyImages(pictures, preparation, size, numbers) for numbers in (train, test))
        notes = "; ".join([*file.notes, note])
        return Dataset(file.name, images, labels[train], test_images, labels[test], classes, notes)
    test_pictures, test_labels = _part(file, TEST_IMAGES, TEST_LABELS, reading.channels)
    _in_range(file.path, TEST_LABELS, test_labels, len(classes))
    test_size = preparation.size(test_pictures.sizes, file.path)
    if (test_size, test_pictures.channels) != (size, pictures.channels):
        shapes = (f"{part.channels}x{s[0]}x{s[1]}" for part, s in ((pictures, size), (test_pictures, test_size)))
        raise InputError(
            f"{file.path}: `images` are {next(shapes)} and `test_images` {next(shapes)}; should be the same"
        )
    images, test_images = (
        LazyImages(part, preparation, size, np.arange(len(part))) for part in (pictures, test_pictures)
    )
    return Dataset(file.name, images, labels, test_images, test_labels, classes, "; ".join(file.notes))


def check_type(where: str, name: str, dtype: np.dtype[Any]) -> None:
    """Check the type of an array by what its name says that it holds.

    Raises:
        InputError: another one is needed.
    """
    if dtype.hasobject or dtype.kind == "O":
        raise InputError(f"{where}: `{name}` holds pickled objects, which are refused; save it as numbers")
    if name in (IMAGES, TEST_IMAGES) and dtype != np.uint8:
        raise InputError(f"{where}: `{name}` is of {dtype}; should be uint8, from 0 to 255")
    if name in (LABELS, TEST_LABELS) and dtype.kind not in "iu":
        raise InputError(f"{where}: `{name}` is of {dtype}; should be of whole numbers, such as int64")
    if name == CLASSES and dtype.kind not in "US":
        raise InputError(f"{where}: `{name}` is of {dtype}; should be of names, as numpy.array(['cat', 'dog'])")


def _part(file: ArrayFile, images: str, labels: str, channels: str | None) -> tuple[ArrayPictures, NDArray[np.int64]]:
    pictures = ArrayPictures.of(file.images(images), images, file.path, channels)
    values = file.labels(labels)
    if values.shape not in ((len(pictures),), (len(pictures), 1)):
        raise InputError(
            f"{file.path}: `{labels}` has shape {values.shape}; should be ({len(pictures)},), one an image"
        )
    wide = values.reshape(-1)
    if wide.dtype.kind == "u" and len(wide) and int(wide.max()) >= 1 << 63:
        raise InputError(f"{file.path}: `{labels}` has a label of {int(wide.max())}")
    return pictures, wide.astype(np.int64)


def _classes(where: str, labels: NDArray[np.int64], names: list[str] | None) -> tuple[str, ...]:
    """Return the names of the classes: those of the file, or the numbers up to the largest label, which all occur."""
    if names is not None:
        if not names:
            raise InputError(f"{where}: `{CLASSES}` is empty; should have a name for each class, or be left out")
        _in_range(where, LABELS, labels, len(names))
        return tuple(names)
    most = len(np.unique(labels))
    _in_range(where, LABELS, labels, most, " without gaps, since there is no array `classes` of names")
    return tuple(map(str, range(most)))


def _in_range(where: str, name: str, labels: NDArray[np.int64], classes: int, why: str = "") -> None:
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(wrong):
        raise InputError(
            f"{where}: `{name}`: label {labels[wrong[0]]} found at place {wrong[0]}; should be 0 to {classes - 1}{why}"
        )
