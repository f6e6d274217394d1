"""What a number format says, and the values of narrow formats. A file here with a `NumberFormat`
adds one.

Values are floats or fixed point, alone or in blocks with a scale. A float's grid has 2^f values
between neighbouring powers of two, down to a least exponent, below which the distance of values
stays the same. Fixed point is such a grid whose least exponent is its only one. With f = 1, from
the least exponent 0 on:

    0   .5    1   1.5   2         3         4                   6
    |----|----|----|----|---------|---------|-------------------|----
      as far apart as here  twice as far      four times as far

A narrow number is kept as the fp32 number of its value, so a kernel that multiplies and adds in
fp32 multiplies narrow numbers exactly; `kernels/quantise` rounds onto a format's grid.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import re
import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from ..extensions import by_name, instances, registry

if TYPE_CHECKING:  # names of formats are found for --help, which does without NumPy
    import numpy as np
    from numpy.typing import NDArray

FRACTION_BITS, BIAS = 23, 127
"""Bits of fp32's fraction, and the bias of its exponent."""
NARROW_BITS, WIDE_BITS = FRACTION_BITS + 1, 53
"""Bits of a whole number that fp32 and fp64 hold."""


@dataclasses.dataclass(frozen=True)
class FloatGrid:
    """The values of a narrow format.

    `fraction_bits` follow the leading bit of a number of at least 2^`least_exponent`; below, values
    are 2^(`least_exponent` - `fraction_bits`) apart. Beyond `largest`, numbers become infinite if
    the format `overflows`, and else saturate.
    """

    fraction_bits: int
    least_exponent: int
    largest: float
    overflows: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.fraction_bits < FRACTION_BITS:
            raise ValueError(
                f"`fraction_bits` = {self.fraction_bits}: fp32 holds grids of 0 to"
                f" {FRACTION_BITS - 1}"
            )
        if not 1 - BIAS <= self.least_exponent <= BIAS:
            raise ValueError(
                f"`least_exponent` = {self.least_exponent}: fp32 has {1 - BIAS} to {BIAS}"
            )
        if not 0 < self.largest < math.inf or not _is_single(self.largest):
            raise ValueError(f"`largest` = {self.largest}: should be a positive fp32 number")

    @property
    def is_fixed_point(self) -> bool:
        """Whether all values are multiples of the least one."""
        return self.largest < 2.0 ** (self.least_exponent + 1)

    @property
    def spacing(self) -> float:
        """The least distance of two values."""
        return float(2.0 ** (self.least_exponent - self.fraction_bits))


def _is_single(value: float) -> bool:
    try:
        return bool(struct.unpack("f", struct.pack("f", value))[0] == value)
    except OverflowError:
        return False


@dataclasses.dataclass(frozen=True)
class BlockGrid:
    """A format of blocks: `size` elements of a grid, and a scale for each block, a power of two.

    The scale is the least under which no element saturates; that of OCP, by the exponent of the
    largest element alone, cuts that element by up to an eighth: `floor` has it.

    Scales on a grid of their own, `scale`, have too small a range to stand alone: they are relative
    to a scale of the tensor in which the block is, an fp32 number, and a power of two here.

    Of weights, `size` elements of as many `lines` side by side may share a scale.
    """

    element: FloatGrid
    size: int = 32
    floor: bool = False
    scale: FloatGrid | None = None
    lines: int = 1

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"`size` = {self.size}: a block has an element at least")
        if self.element.overflows:
            raise ValueError("elements of a block saturate; they have no infinity")
        if self.scale is not None and (self.floor or self.scale.overflows):
            raise ValueError("scales on a grid are the nearest ones, and saturate")
        if self.lines < 1 or (self.lines > 1 and self.scale is not None):
            raise ValueError(f"`lines` = {self.lines}: scales on a grid are those of one line")


Grid = FloatGrid | BlockGrid


class Rounding(enum.Enum):
    """To the nearest value, where two are equally near the even one or that away from zero; to
    zero; or by chance.
    """

    EVEN = 0
    AWAY = 1
    ZERO = 2
    STOCHASTIC = 3


def fixed_point(integer_bits: int, fraction_bits: int) -> FloatGrid:
    """Return the grid of fixed point, `integer_bits` with the sign; symmetrical, so that no sign
    costs a value.

    Raises:
        ValueError: it has no or too many bits.
    """
    bits = integer_bits + fraction_bits - 1
    if integer_bits < 1 or fraction_bits < 0 or not 1 <= bits <= FRACTION_BITS - 1:
        raise ValueError(
            f"q{integer_bits}.{fraction_bits}: should have 2 to {FRACTION_BITS} bits, one of them"
            " the sign"
        )
    return FloatGrid(bits, integer_bits - 1, float((2**bits - 1) * 2.0**-fraction_bits))


Count = TypeVar("Count", "int", "NDArray[np.int64]")
"""A number of values or bytes, or an array of such numbers."""

SCALE_BITS = 8
"""Bits of a block's scale: E8M0 (Microscaling Formats 1.0, section 5.4.1), or E4M3."""
TENSOR_BYTES = 4
"""Bytes of the scale of a tensor, in formats that have one."""
MULTIPLIERS = "fp32", "half", "fp8", "int8", "int4"
"""Classes of multipliers, as boards have them."""


@dataclasses.dataclass(frozen=True)
class NumberFormat:
    """A format of values: activations, errors, parameters and gradients, in computation, on links
    and in memory.

    Engines cost as much in all formats, unless a board says otherwise: `multiplier_lut` and
    `multiplier_ff` are those of a multiplier and adder built without DSPs. These are an assumption:
    Xilinx's floating-point operator (PG060) takes about 600 and 400 LUTs for them in single
    precision.
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
        """Values of a line that share a scale; 0 where each stands alone."""
        return self.grid.size if isinstance(self.grid, BlockGrid) else 0

    @property
    def lines(self) -> int:
        """Lines side by side whose blocks share their scales."""
        return self.grid.lines if isinstance(self.grid, BlockGrid) else 1

    def scaled_lines(self, lines: int, side_by_side: int) -> int:
        """Return how many of some lines have scales of their own, `side_by_side` in a row."""
        return -(-lines // side_by_side) * -(-side_by_side // self.lines) if lines else 0

    @property
    def tensor_bytes(self) -> int:
        """Bytes of the scale of a tensor; 0 where it has none."""
        return TENSOR_BYTES if isinstance(self.grid, BlockGrid) and self.grid.scale else 0

    def bytes_of(self, values: Count) -> Count:
        """Return the bytes of a number of values that lie or travel together, with the scales of
        their blocks, and of one tensor.
        """
        size = (values * self.bits + 7) // 8 + self.tensor_bytes * (values > 0)
        return size + -(-values // self.block) * (SCALE_BITS // 8) if self.block else size

    def blocks(self, length: Count, begin: Count | int = 0) -> Count:
        """Return the blocks that `length` values of a line touch from place `begin` on; each has
        its scale with it.
        """
        if not self.block:
            return 0 * length
        # Blocks to the end of the last one touched, less those before the first; no values touch
        # none, wherever they are.
        return (-(-(begin + length) // self.block) - begin // self.block) * (length > 0)

    def row_bytes(
        self, channels: Count, columns: int, begin: Count | int = 0, tensors: int = 1
    ) -> Count:
        """Return the bytes of a row of `columns` pixels with the channels from `begin` on.

        Blocks are of channels of a pixel, from the map's channel 0 on; the row is a tensor.
        """
        size = (channels * columns * self.bits + 7) // 8
        size = size + self.tensor_bytes * tensors * (channels * columns > 0)
        return (
            size + self.blocks(channels, begin) * columns * (SCALE_BITS // 8)
            if self.block
            else size
        )

    def values_in(self, size_bytes: Count) -> Count:
        """Return the most values that a number of bytes holds."""
        if not self.block:
            return 8 * size_bytes // self.bits
        size_bytes = size_bytes - self.tensor_bytes
        size_bytes = size_bytes * (size_bytes > 0)
        whole = self.bytes_of(self.block) - self.tensor_bytes
        # The scale of a block that is not whole takes its byte before any value.
        left = size_bytes % whole - SCALE_BITS // 8
        return size_bytes // whole * self.block + (left > 0) * (8 * left // self.bits)


_WIDE_BYTES = 4
"""Bytes of a number in fp32."""


@dataclasses.dataclass(frozen=True)
class Lines:
    """Values in `count` lines of `length` values, along which blocks run, from place `begin` of
    each line on.

    Lines of maps are the channels of a pixel, from the map's channel 0 on; those of weights run
    along the dimension in which a layer is not cut. So it is on links, in memories on and off chip,
    and in RTL. As many lines as there are `in_tensor` are a tensor with a scale of its own, in
    formats that have one: of maps a row, of weights those of a channel in which the layer is cut.

    Of weights, `side_by_side` lines in a row may share scales, as many as a format says.

    `beside` are other lines with them, and `wide` is the number of values with them that are in
    fp32 in any format.
    """

    length: int
    count: int
    begin: int = 0
    in_tensor: int = 1
    beside: tuple[Lines, ...] = ()
    wide: int = 0
    side_by_side: int = 1

    @property
    def values(self) -> int:
        """Number of values."""
        return self.length * self.count + self.wide + sum(lines.values for lines in self.beside)

    def share(self, shares: int) -> Lines:
        """Return the largest of some equal shares, in one line."""
        return self if shares == 1 else Lines(-(-self.values // shares), 1)

    def scales(self, number: NumberFormat) -> int:
        """Return the number of scales in a format."""
        own = self._scaled(number) * number.blocks(self.length, self.begin)
        return own + sum(lines.scales(number) for lines in self.beside)

    def _scaled(self, number: NumberFormat) -> int:
        return (
            number.scaled_lines(self.count, self.side_by_side) if number.lines > 1 else self.count
        )

    @property
    def tensors(self) -> int:
        """The number of tensors."""
        return self._own_tensors + sum(lines.tensors for lines in self.beside)

    @property
    def _own_tensors(self) -> int:
        return -(-self.count // self.in_tensor)

    def bytes_in(self, number: NumberFormat) -> int:
        """Return the bytes of all values and scales in a format."""
        own = number.row_bytes(self.length, self.count, self.begin, self._own_tensors)
        shared = self.count - self._scaled(number)
        own -= shared * number.blocks(self.length, self.begin) * (SCALE_BITS // 8)
        beside = sum(lines.bytes_in(number) for lines in self.beside)
        return own + _WIDE_BYTES * self.wide + beside


@dataclasses.dataclass(frozen=True)
class NumberFamily:
    """Formats whose names say their numbers: `spelling` is how, `pattern` matches names, `make`
    makes their format.
    """

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
def number_patterns() -> tuple[str, ...]:
    """Return the patterns of the names of families."""
    return tuple(family.pattern for family in instances(__package__, NumberFamily))


@registry
def number_format(name: str) -> NumberFormat:
    """Return a format by its name.

    Raises:
        ValueError: there is none; the message says what there is, or what is wrong with its
            numbers.
    """
    if name in number_formats():
        return number_formats()[name]
    for family in instances(__package__, NumberFamily):
        if match := re.fullmatch(family.pattern, name):
            return family.make(name, match)
    raise ValueError(f"known: {', '.join(number_spellings())}")
