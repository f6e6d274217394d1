"""Operands of sums of blocks as integers (`integer_kernel.py`): packed into memory that stays, and
what is known of their scales.
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..form import PRODUCTS
from ..jit import FLOAT_BYTES, Floats, Kernels, address_of
from ..memory import aligned
from .geometry import IntegerContraction, Window, padded_lanes
from .operands import Tables

integer_kernel, integer_packing = Kernels("conv.integer_kernel"), Kernels("conv.integer_packing")

Words = NDArray[np.int32]
_TOGETHER, _HEAD = 4 if PRODUCTS == "vnni" else 2, 2  # as in `integer_kernel.py`
_SPARE = 64  # bytes behind records
_ONE = 127 + 6  # the biased exponent of the largest number of a block whose scale is 1
_LEAST_EXPONENT, _MOST_EXPONENT = -149, 127


class Integers(NamedTuple):
    """Packed integers, and the least and the largest biased exponents of the largest numbers of
    their blocks.
    """

    words: Words
    extremes: Words


@dataclasses.dataclass(frozen=True)
class Packing:
    """Packs operands in blocks of up to `block` numbers. Each method returns None where they are
    no integers of 8 bits at one scale in each block.
    """

    block: int
    _rooms: dict[str, Words] = dataclasses.field(default_factory=dict, repr=False, compare=False)

    @property
    def record(self) -> int:
        """Words of a record."""
        return _HEAD + -(-self.block // _TOGETHER)

    def records(self, name: str, frame: Floats, sizes: NDArray[np.int64]) -> Integers | None:
        """Return a frame (samples, channels, rows, columns), in blocks of channels of these
        sizes.
        """
        samples, _, *size = frame.shape
        area, extremes = math.prod(size), _extremes()
        out = self._room(name, samples * sizes.size * area * self.record)
        given = address_of(frame), samples, area, sizes, self.record
        is_some = integer_packing.pack_maps(*given, out, extremes)
        return Integers(out, extremes) if is_some else None

    def lines(
        self, planes: int, count: int, window: Window, *, rounds: bool = False
    ) -> Integers | None:
        """Return what a window reads of planes, from an address on, in blocks from the beginning of
        each; where it `rounds`, rounded to even in these blocks, to what has 7 bits.
        """
        blocks = -(-window.rows * window.columns // self.block)
        out, extremes = self._room("lines", count * blocks * self.record), _extremes()
        given = planes, count, window, self.block, int(rounds), self.record
        is_some = integer_packing.pack_lines(*given, out, extremes)
        return Integers(out, extremes) if is_some else None

    def panels(
        self, name: str, values: int, step: int, lanes: int, lengths: NDArray[np.int64]
    ) -> Integers | None:
        """Return what is multiplied by records, from an address on, in blocks of `lengths`; its
        rows are `step` floats apart, or packed in panels where that is 0.
        """
        rows = int((1 + words_of(lengths)).sum())
        out, extremes = self._room(name, rows * int(padded_lanes(lanes))), _extremes()
        is_some = integer_packing.pack_panels(values, step, lanes, lengths, out, extremes)
        return Integers(out, extremes) if is_some else None

    def _room(self, name: str, words: int) -> Words:
        if name not in self._rooms or self._rooms[name].size < words:
            self._rooms[name] = aligned(FLOAT_BYTES * words + _SPARE).view(np.int32)
        return self._rooms[name]


def contract(
    to: tuple[int, int, int, int, int, int],
    records: Integers | None,
    tables: Tables,
    panels: Integers | None,
) -> bool:
    """Run a contraction in integers, if both operands are some, with scales whose products fp32
    has; return whether it ran.

    `to` is where it goes, the first fields of an `IntegerContraction`; the last three tables are
    those of records and words.
    """
    if records is None or panels is None:
        return False
    sums = records.extremes.astype(int) + panels.extremes - 2 * _ONE
    if sums[0] < _LEAST_EXPONENT or sums[1] > _MOST_EXPONENT:
        return False
    a, b = (address_of(operand.words) for operand in (records, panels))
    a_pixel, a_block, words = tables.places[-3:]
    operands = IntegerContraction(*to, a, a_pixel, a_block, b, words, tables.keep[-1].size)
    integer_kernel.contract(operands)
    return True


def words_of(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the words of integers of blocks."""
    return -(-lengths // _TOGETHER)


def _extremes() -> Words:
    """Return exponents from which the extremes are found."""
    return np.array([_ONE, _ONE], np.int32)
