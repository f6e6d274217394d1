"""The idx format of MNIST: a magic number, the dimensions (big-endian, 32 bits each), then unsigned bytes."""

import math
import struct
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from ..common import InputError
from .files import opened, read_at_most

_UNSIGNED_BYTE = 0x08


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """Return the array of `dimensions` dimensions in `path` (plain, or gzip if its name ends in .gz).

    Raises InputError when the file is missing, cut off, too long, or not an idx file of `dimensions` dimensions.
    """
    with opened(path) as stream:
        shape = _header(path, stream, dimensions)
        expected = math.prod(shape)
        body = read_at_most(stream, expected + 1)
    if len(body) != expected:
        start = 4 + 4 * dimensions
        found = f"cut off: {start + len(body)} bytes" if len(body) < expected else "too long: more bytes"
        sizes = "x".join(map(str, shape))
        raise InputError(f"{path}: {found} found, {start + expected} expected for the {sizes} its header names")
    return np.frombuffer(body, np.uint8).reshape(shape).copy()  # a copy, since frombuffer's result is read-only


def idx_shape(path: Path, dimensions: int) -> tuple[int, ...]:
    """Return the shape in the header of `path`, without reading the rest of the file. Raises InputError."""
    with opened(path) as stream:
        return _header(path, stream, dimensions)


def _header(path: Path, stream: BinaryIO, dimensions: int) -> tuple[int, ...]:
    size = 4 + 4 * dimensions
    header = read_at_most(stream, size)
    if len(header) < size:
        raise InputError(f"{path}: cut off: {len(header)} bytes found, an idx header of {size} expected")
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
