"""The idx format of MNIST: a magic number, the dimensions (big-endian, 32 bits each), then unsigned bytes."""

import math
import struct
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from ..common import InputError, format_bytes, free_room
from .files import opened, read_at_most

_UNSIGNED_BYTE = 0x08
_DEFLATE_MOST = 1032  # bytes that one compressed byte can stand for


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """Return the array of `dimensions` dimensions in `path` (plain, or gzip if its name ends in .gz).

    Raises InputError when the file is missing, cut off, too long, or not an idx file of `dimensions` dimensions.
    """
    with opened(path) as stream:
        shape = _header(path, stream, dimensions)
        expected, room = math.prod(shape), free_room()
        if path.suffix == ".gz" and room.free_bytes < expected <= _DEFLATE_MOST * path.stat().st_size:
            raise InputError(
                f"{path}: its {'x'.join(map(str, shape))} values would take {format_bytes(expected)} of memory, and"
                f" {room.limit} {format_bytes(room.free_bytes)}"
            )
        body = read_at_most(stream, expected + 1)
    if len(body) != expected:
        raise _wrong_size(path, shape, len(body))
    return np.frombuffer(body, np.uint8).reshape(shape).copy()  # a copy, since frombuffer's result is read-only


def idx_shape(path: Path, dimensions: int) -> tuple[int, ...]:
    """Return the shape in the header of `path`; of the rest, only the size of a plain file is looked at.

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
    return InputError(f"{path}: {said} found, {start + expected} expected for the {sizes} its header names")


def _header(path: Path, stream: BinaryIO, dimensions: int) -> tuple[int, ...]:
    size = _start(dimensions)
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
