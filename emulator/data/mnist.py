"""MNIST as idx files, plain or gzip, under either spelling of the names that mirrors use.

An idx file is a magic number, the dimensions (big-endian, 32 bits each), then unsigned bytes.
"""

import math
import struct
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..common import InputError, format_bytes, free_room, plural
from .dataset import Dataset
from .files import opened, read_at_most

_UNSIGNED_BYTE = 0x08
_DEFLATE_MOST = 1032  # bytes that one compressed byte can stand for


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """Return the array of `dimensions` dimensions in `path` (plain, or gzip if its name ends in
    .gz).

    Raises InputError when the file is missing, cut off, too long, or not an idx file of
    `dimensions` dimensions.
    """
    with opened(path) as stream:
        shape = _header(path, stream, dimensions)
        expected, room = math.prod(shape), free_room()
        if (
            path.suffix == ".gz"
            and room.free_bytes < expected <= _DEFLATE_MOST * path.stat().st_size
        ):
            raise InputError(
                f"{path}: its {'x'.join(map(str, shape))} values would take"
                f" {format_bytes(expected)} of memory, and {room.limit}"
                f" {format_bytes(room.free_bytes)}"
            )
        body = read_at_most(stream, expected + 1)
    if len(body) != expected:
        raise _wrong_size(path, shape, len(body))
    return (
        np.frombuffer(body, np.uint8).reshape(shape).copy()
    )  # a copy, since frombuffer's result is read-only


def idx_shape(path: Path, dimensions: int) -> tuple[int, ...]:
    """Return the shape in the header of `path`; of the rest, only the size of a plain file is
    looked at.

    Raises InputError as `read_idx`.
    """
    with opened(path) as stream:
        shape = _header(path, stream, dimensions)
    body = path.stat().st_size - _start(dimensions)
    if path.suffix != ".gz" and body != math.prod(shape):
        raise _wrong_size(path, shape, body)
    return shape


def _start(dimensions: int) -> int:
    """Return the size of a header."""
    return 4 + 4 * dimensions


def _wrong_size(path: Path, shape: tuple[int, ...], body: int) -> InputError:
    start, expected, sizes = _start(len(shape)), math.prod(shape), "x".join(map(str, shape))
    said = f"cut off: {start + body} bytes" if body < expected else "too long: more bytes"
    return InputError(
        f"{path}: {said} found, {start + expected} expected for the {sizes} its header names"
    )


def _header(path: Path, stream: BinaryIO, dimensions: int) -> tuple[int, ...]:
    size = _start(dimensions)
    header = read_at_most(stream, size)
    if len(header) < size:
        raise InputError(
            f"{path}: cut off: {len(header)} bytes found, an idx header of {size} expected"
        )
    magic, *shape = struct.unpack(f">{1 + dimensions}I", header)
    expected = _UNSIGNED_BYTE << 8 | dimensions
    if magic != expected:
        raise InputError(
            f"{path}: magic number 0x{magic:08x} found, 0x{expected:08x} expected"
            f" (unsigned bytes in {dimensions} dimension{'s' * (dimensions > 1)})"
        )
    if 0 in shape:
        raise InputError(f"{path}: is empty: its header names {'x'.join(map(str, shape))} values")
    return tuple(shape)


CLASSES = tuple("0123456789")
_TRAIN, _TEST = "train", "t10k"
_TEST_SHARE = 5  # every fifth image is for test, if one set of files must serve for both
_NOTE = (
    "only MNIST's t10k files are present: every fifth image is for testing, the others for training"
)


class _Files(NamedTuple):
    images: Path
    labels: Path


def is_mnist(folder: Path) -> bool:
    """Return whether any of MNIST's files is in `folder`."""
    return any(path.exists() for part in (_TRAIN, _TEST) for path in _files(folder, part))


def load_mnist(folder: Path) -> Dataset:
    """Load MNIST from `folder`: images (N, 1, 28, 28). With the t10k files alone, one image in five
    is for test.

    Raises InputError when a file is missing, damaged, or does not fit the others.
    """
    test_images, test_labels = _read(folder, _TEST)
    if _only_test(folder):
        n = len(test_images)
        if n < _TEST_SHARE:
            raise InputError(
                f"{folder}: {plural(n, 'image')} found, at least {_TEST_SHARE} needed to split them"
            )
        test = np.arange(n) % _TEST_SHARE == _TEST_SHARE - 1
        parts = test_images[~test], test_labels[~test], test_images[test], test_labels[test]
        return Dataset("mnist-t10k", *parts, CLASSES, _NOTE)
    train_images, train_labels = _read(folder, _TRAIN)
    _same_size(folder, train_images.shape[2:], test_images.shape[2:])
    return Dataset("mnist", train_images, train_labels, test_images, test_labels, CLASSES)


def describe_mnist(folder: Path) -> tuple[int, int, tuple[int, int, int], int]:
    """Return (n_train, n_test, (c, h, w), n_classes) from the headers of the image files. Raises
    InputError.
    """
    n_test, h, w = idx_shape(_files(folder, _TEST).images, 3)
    if _only_test(folder):
        n, n_test = n_test, n_test // _TEST_SHARE
        return n - n_test, n_test, (1, h, w), len(CLASSES)
    n_train, *train_size = idx_shape(_files(folder, _TRAIN).images, 3)
    _same_size(folder, tuple(train_size), (h, w))
    return n_train, n_test, (1, h, w), len(CLASSES)


def _only_test(folder: Path) -> bool:
    return not any(path.exists() for path in _files(folder, _TRAIN))


def _files(folder: Path, part: str) -> _Files:
    return _Files(_spelt(folder, f"{part}-images", 3), _spelt(folder, f"{part}-labels", 1))


def _spelt(folder: Path, stem: str, dimensions: int) -> Path:
    """Return the path in the spelling that exists, or else in the official one."""
    official = f"{stem}-idx{dimensions}-ubyte"
    plain = (official, f"{stem}.idx{dimensions}-ubyte")
    names = (*plain, *(f"{name}.gz" for name in plain))
    return next((folder / name for name in names if (folder / name).exists()), folder / official)


def _read(folder: Path, part: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    files = _files(folder, part)
    images, labels = read_idx(files.images, 3), read_idx(files.labels, 1)
    if len(images) != len(labels):
        raise InputError(
            f"{files.labels}: {len(labels)} labels found, {len(images)} expected, one for each"
            " image"
        )
    wrong = np.flatnonzero(labels >= len(CLASSES))
    if len(wrong):
        raise InputError(
            f"{files.labels}: label {labels[wrong[0]]} found at place {wrong[0]}, 0 to 9 expected"
        )
    return images[:, None], labels.astype(np.int64)


def _same_size(folder: Path, train: tuple[int, ...], test: tuple[int, ...]) -> None:
    if train != test:
        sizes = ["x".join(map(str, size)) for size in (train, test)]
        raise InputError(
            f"{folder}: training images are {sizes[0]} and test images {sizes[1]}; both must be the"
            " same"
        )
