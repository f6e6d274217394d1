"""What kernels of convolutions take: offset tables, the addresses of maps, checked, and weights in
blocks of channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..form import FORM
from ..jit import FLOAT_BYTES, Floats, Kernels, address_of, of_float32

microkernel = Kernels("conv.microkernel")

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


def in_blocks(rows: Floats, block: int, *, descending: bool = False) -> Floats:
    """Return rows (lanes, channels, taps) as (lanes, (block, tap, channel in the block)), with
    blocks `descending` or not.
    """
    lanes, channels, taps = rows.shape
    end = channels - channels % block
    whole = rows[:, :end].reshape(lanes, -1, block, taps)[:, :: -1 if descending else 1]
    parts = [part.swapaxes(-1, -2).reshape(lanes, -1) for part in (whole, rows[:, end:])]
    return np.ascontiguousarray(np.concatenate(parts[::-1] if descending else parts, axis=1))


def apart(flat: Floats, channels: int, block: int) -> Floats:
    """Return what `in_blocks` took, (lanes, channels, taps), of rows that are not turned."""
    lanes, rest = len(flat), channels % block
    taps, whole = flat.shape[1] // channels, channels - rest
    rows = np.empty((lanes, channels, taps), np.float32)
    apart = flat[:, : whole * taps].reshape(lanes, -1, taps, block)
    rows[:, :whole] = apart.swapaxes(2, 3).reshape(lanes, whole, taps)
    if rest:
        rows[:, whole:] = flat[:, whole * taps :].reshape(lanes, taps, rest).swapaxes(1, 2)
    return rows


def panel_widths(lanes: int) -> Sequence[int]:
    """Return the widths of the panels of packed weights of some lanes."""
    widths = []
    while lanes > 0:
        widths.append(int(microkernel.vectors_of(lanes)) * FORM.width)
        lanes -= widths[-1]
    return widths
