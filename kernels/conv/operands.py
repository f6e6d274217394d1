"""What kernels of convolutions take: offset tables, and the addresses of maps, checked."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..jit import FLOAT_BYTES, Floats, address_of, of_float32

Offsets = NDArray[np.int64]


class Tables(NamedTuple):
    """Offset tables of the numbers of a micro-batch, which hold the memory, and their addresses."""

    keep: tuple[Offsets, ...]
    places: tuple[int, ...]

    @classmethod
    def of(cls, *tables: Offsets) -> Tables:
        """Return some tables with their addresses."""
        return cls(tables, tuple(table.ctypes.data for table in tables))


def offsets_of(*axes: tuple[int, int]) -> Offsets:
    """Return the offsets of all indices of nested loops, each (count, step), in order."""
    offsets = np.zeros((), np.int64)
    for count, step in axes:
        offsets = offsets[..., None] + np.arange(count, dtype=np.int64) * step
    return offsets.reshape(-1)


def add_nothing(target: Floats, fresh: bool) -> None:
    """Add nothing: where sums are `fresh`, these are zeros."""
    if fresh:
        target[...] = 0


def backwards(offsets: Offsets) -> Offsets:
    """Return offsets from the last to the first."""
    return np.ascontiguousarray(offsets[::-1])


def maps_at(maps: Floats, shape: tuple[int, ...], name: str) -> tuple[int, int]:
    """Return the address of maps (n, rows, columns, channels), and the floats from one pixel to the
    next.
    """
    if maps.shape != shape:
        raise ValueError(f"{name} has shape {maps.shape}; {shape} is needed")
    of_float32(maps, name)
    n, h, w, channels = shape
    if not maps.size:
        return 0, channels
    sn, sh, sw, sc = maps.strides
    step = sw if w > 1 else sh if h > 1 else sn if n > 1 else channels * FLOAT_BYTES
    fits = (
        (n == 1 or sn == h * w * step)
        and (h == 1 or sh == w * step)
        and (channels == 1 or sc == FLOAT_BYTES)
    )
    if not fits or step < channels * FLOAT_BYTES:
        raise ValueError(
            f"{name} has strides {maps.strides}; whole maps with the channels last, or a slice of"
            " their channels, are needed"
        )
    return address_of(maps), step // FLOAT_BYTES


def whole_at(array: Floats, shape: tuple[int, ...], name: str) -> int:
    """Return the address of a contiguous array. Raise ValueError if it is not one of float32 and
    `shape`.
    """
    if array.shape != shape or array.dtype != np.float32 or not array.flags.c_contiguous:
        raise ValueError(
            f"{name} is {array.dtype} {array.shape}; contiguous float32 {shape} is needed"
        )
    return address_of(array)


def flat_at(array: Floats, size: int, name: str) -> int:
    """Return the address of a flat array of some size; see `whole_at`."""
    return whole_at(array, (size,), name)
