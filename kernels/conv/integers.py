"""Operands of sums of blocks as integers (`integer_kernel.py`): packed into memory that stays, and
what is known of their scales.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..form import PRODUCTS
from ..jit import FLOAT_BYTES, Kernels, address_of
from ..memory import aligned
from .geometry import IntegerContraction, padded_lanes
from .operands import Tables, offsets_of

integer_kernel, integer_packing = Kernels("conv.integer_kernel"), Kernels("conv.integer_packing")

Words = NDArray[np.int32]
_TOGETHER, HEAD = 4 if PRODUCTS == "vnni" else 2, 2  # as in `integer_kernel.py`
_MOST_KEPT = 6  # arrays of weights: three versions, of which each has two
_SPARE = 64  # bytes behind records
_ONE = 127 + 6  # the biased exponent of the largest number of a block whose scale is 1
_LEAST_EXPONENT, _MOST_EXPONENT = -126, 127  # of products of scales


class Integers(NamedTuple):
    """Packed integers, the least and the largest biased exponents of the largest numbers of their
    blocks, and of a the bytes between the words of a block.
    """

    words: Words
    extremes: Words
    step: int = FLOAT_BYTES


@dataclasses.dataclass(frozen=True)
class Packing:
    """Packs operands in blocks of up to `block` numbers. Each method returns None where they are
    no integers of 8 bits at one scale in each block.
    """

    block: int
    _rooms: dict[Any, Words] = dataclasses.field(default_factory=dict, repr=False, compare=False)
    _kept: dict[int, dict[int, Integers | None]] = dataclasses.field(
        default_factory=dict, repr=False, compare=False
    )

    @property
    def record(self) -> int:
        """Words of a record."""
        return HEAD + -(-self.block // _TOGETHER)

    def records(
        self, name: str, lines: int, samples: int, area: int, sizes: NDArray[np.int64]
    ) -> Integers | None:
        """Return lines (samples, area, numbers), from an address on, in blocks of these sizes."""
        out, extremes = self._room(name, samples * sizes.size * area * self.record), _extremes()
        given = lines, samples, area, sizes, self.record
        is_some = integer_packing.pack_lines(*given, out, extremes)
        return Integers(out, extremes) if is_some else None

    def pixels(
        self,
        frame: int,
        offsets: NDArray[np.int64],
        channels: int,
        lengths: NDArray[np.int64],
        *,
        rounds: bool,
    ) -> Integers | None:
        """Return channels of pixels, from an address and offsets on, in blocks of pixels of these
        lengths; where it `rounds`, rounded to even in these blocks, to what has 7 bits.
        """
        row = int(padded_lanes(channels))
        out = self._room("pixels", int((HEAD + words_of(lengths)).sum()) * row)
        extremes, given = _extremes(), (frame, offsets, channels, lengths, int(rounds))
        is_some = integer_packing.pack_pixels(*given, out, extremes)
        return Integers(out, extremes, FLOAT_BYTES * row) if is_some else None

    def weights(
        self, array: int, begin: int, lanes: int, lengths: NDArray[np.int64]
    ) -> Integers | None:
        """Return packed weights from an address on, which lie in the array at another one: those
        that are kept, if `changed` knows the array.
        """
        kept = self._kept.get(array)
        if kept is None:
            return self.panels("weights", begin, 0, lanes, lengths)
        if begin not in kept:
            kept[begin] = self.panels((array, begin), begin, 0, lanes, lengths)
        return kept[begin]

    def changed(self, array: int) -> None:
        """Keep the integers of weights at an address from their next use on, until this is called
        again; those of the `_MOST_KEPT` arrays that changed last.
        """
        self._kept.pop(array, None)
        self._kept[array] = {}
        if len(self._kept) > _MOST_KEPT:
            [oldest, *_] = self._kept
            del self._kept[oldest]
            for key in [key for key in self._rooms if key[0] == oldest]:
                del self._rooms[key]

    def panels(
        self, name: Any, values: int, step: int, lanes: int, lengths: NDArray[np.int64]
    ) -> Integers | None:
        """Return what is multiplied by records, from an address on, in blocks of `lengths`; its
        rows are `step` floats apart, or packed in panels where that is 0.
        """
        rows = int((1 + words_of(lengths)).sum())
        out, extremes = self._room(name, rows * int(padded_lanes(lanes))), _extremes()
        is_some = integer_packing.pack_panels(values, step, lanes, lengths, out, extremes)
        return Integers(out, extremes) if is_some else None

    def _room(self, name: Any, words: int) -> Words:
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
    operands = IntegerContraction(
        *to, a, a_pixel, a_block, records.step, b, words, tables.keep[-1].size
    )
    integer_kernel.contract(operands)
    return True


def words_of(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the words of integers of blocks."""
    return -(-lengths // _TOGETHER)


def sizes_of(count: int, block: int) -> NDArray[np.int64]:
    """Return the lengths of blocks of `count` values, from the first one on."""
    whole, rest = divmod(count, block)
    return np.array([block] * whole + [rest] * (rest > 0), np.int64)


def block_tables(
    pixels: NDArray[np.int64],
    read: NDArray[np.int64],
    taps: NDArray[np.int64],
    packing: Packing,
    channels: int,
    area: int,
    *,
    descending: bool = False,
) -> Tables:
    """Return the tables of FP or EB: pixels that are written; the floats of a frame of `area` pixels
    that these read, and that those of `taps`, in pixels, are apart, in blocks of channels; the
    lengths of blocks; and pixels and blocks in bytes of records, and the words of blocks.
    """
    sizes = sizes_of(channels, packing.block)
    order = np.arange(sizes.size)[:: -1 if descending else 1]
    blocks = [
        (taps[:, None] * channels + np.arange(size) + packing.block * number).reshape(-1)
        for number, size in zip(order, sizes[order], strict=True)
    ]
    lengths, record = np.repeat(sizes[order], taps.size), FLOAT_BYTES * packing.record
    sample, place = np.divmod(read // channels, area)
    return Tables.of(
        pixels,
        read,
        np.concatenate(blocks),
        lengths,
        record * (sample * sizes.size * area + place),
        record * (order[:, None] * area + taps).reshape(-1),
        words_of(lengths),
    )


def column_tables(channels: int, words: NDArray[np.int64]) -> Tables:
    """Return the offsets of channels, and of blocks of these words, as `Packing.pixels` has them."""
    ends = np.cumsum(HEAD + words) * int(padded_lanes(channels)) * FLOAT_BYTES
    begins = np.concatenate([[0], ends[:-1]])
    return Tables.of(offsets_of((channels, FLOAT_BYTES)), begins, words)


def _extremes() -> Words:
    """Return exponents from which the extremes are found."""
    return np.array([_ONE, _ONE], np.int32)
