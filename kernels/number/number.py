"""What a number format says. To add one, add a file with an instance of `NumberFormat` to this folder.

A narrow number is kept as the fp32 number of its value, so a kernel that multiplies and adds in fp32 multiplies narrow
numbers exactly; `kernels/quantise` rounds onto a format's grid.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from ..extensions import by_name, instances, registry
from .grid import BlockGrid, Grid

if TYPE_CHECKING:  # names of formats are found for --help, which does without NumPy
    import numpy as np
    from numpy.typing import NDArray

Count = TypeVar("Count", "int", "NDArray[np.int64]")
"""A number of values or bytes, or an array of such numbers."""

SCALE_BITS = 8
"""Bits of a block's scale: E8M0 (Microscaling Formats 1.0, section 5.4.1)."""
MULTIPLIERS = "fp32", "half", "fp8", "int8", "int4"
"""Classes of multipliers, as boards have them."""


@dataclasses.dataclass(frozen=True)
class NumberFormat:
    """A format of values: activations, errors, parameters and gradients, in computation, on links and in memory.

    Engines cost as much in all formats, unless a board says otherwise: `multiplier_lut` and `multiplier_ff` are those
    of a multiplier and adder built without DSPs. These are an assumption: Xilinx's floating-point operator (PG060)
    takes about 600 and 400 LUTs for them in single precision.
    """

    name: str
    """As in the key `precision` of a run."""
    bits: int
    """Bits of a value, without its block's scale."""
    grid: Grid | None = None
    """Its values; None: all of fp32's."""
    multiplier: str = "fp32"
    """The class of multipliers that it needs, of `MULTIPLIERS`."""
    multiplier_lut: int = 1000
    multiplier_ff: int = 1200

    @property
    def block(self) -> int:
        """Values that share a scale; 0 where each stands alone."""
        return self.grid.size if isinstance(self.grid, BlockGrid) else 0

    def bytes_of(self, values: Count) -> Count:
        """Return the bytes of a number of values that lie or travel together, with the scales of their blocks."""
        size = (values * self.bits + 7) // 8
        return size + -(-values // self.block) * (SCALE_BITS // 8) if self.block else size

    def blocks(self, length: Count, begin: Count | int = 0) -> Count:
        """Return the blocks that `length` values of a line touch from place `begin` on; each has its scale with it."""
        if not self.block:
            return 0 * length
        return (-(-(begin + length) // self.block) - begin // self.block) * (length > 0)

    def row_bytes(self, channels: Count, columns: int, begin: Count | int = 0) -> Count:
        """Return the bytes of a row of `columns` pixels with the channels from `begin` on.

        Blocks are of channels of a pixel, from the map's channel 0 on.
        """
        size = (channels * columns * self.bits + 7) // 8
        return size + self.blocks(channels, begin) * columns * (SCALE_BITS // 8) if self.block else size

    def values_in(self, size_bytes: Count) -> Count:
        """Return the most values that a number of bytes holds."""
        if not self.block:
            return 8 * size_bytes // self.bits
        whole = self.bytes_of(self.block)
        left = size_bytes % whole - SCALE_BITS // 8
        return size_bytes // whole * self.block + (left > 0) * (8 * left // self.bits)


@dataclasses.dataclass(frozen=True)
class Lines:
    """Values in `count` lines of `length` values, along which blocks run, from place `begin` of each line on.

    Lines of maps are the channels of a pixel, from the map's channel 0 on; those of weights run along the dimension in
    which a layer is not cut. So it is on links, in memories on and off chip, and in RTL.
    """

    length: int
    count: int
    begin: int = 0

    @property
    def values(self) -> int:
        """Number of values."""
        return self.length * self.count

    def scales(self, number: NumberFormat) -> int:
        """Return the number of scales in a format."""
        return self.count * number.blocks(self.length, self.begin)

    def bytes_in(self, number: NumberFormat) -> int:
        """Return the bytes of all values and scales in a format."""
        return number.row_bytes(self.length, self.count, self.begin)


@dataclasses.dataclass(frozen=True)
class NumberFamily:
    """Formats whose names say their numbers: `spelling` is how, `pattern` matches names, `make` makes their format."""

    spelling: str
    pattern: str
    make: Callable[[str, re.Match[str]], NumberFormat]


@registry
def number_formats() -> Mapping[str, NumberFormat]:
    """Return all number formats that have names of their own, those of most bits first."""
    formats = sorted(instances(__package__, NumberFormat), key=lambda number: -number.bits)
    return by_name(formats)


@registry
def number_spellings() -> tuple[str, ...]:
    """Return how formats are called: names, and the spellings of families."""
    return *number_formats(), *(family.spelling for family in instances(__package__, NumberFamily))


@registry
def number_format(name: str) -> NumberFormat:
    """Return a format by its name.

    Raises:
        ValueError: there is none; the message says what there is, or what is wrong with its numbers.
    """
    if name in number_formats():
        return number_formats()[name]
    for family in instances(__package__, NumberFamily):
        if match := re.fullmatch(family.pattern, name):
            return family.make(name, match)
    raise ValueError(f"known: {', '.join(number_spellings())}")
