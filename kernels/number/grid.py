"""The values of narrow formats, each an fp32 number, and ways to round onto them.

Values are floats or fixed point, alone or in blocks with a scale.

A float's grid has 2^f values between neighbouring powers of two, down to a least exponent, below which the distance of
values stays the same. Fixed point is such a grid whose least exponent is its only one.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import struct

FRACTION_BITS, BIAS = 23, 127
"""Bits of fp32's fraction, and the bias of its exponent."""


@dataclasses.dataclass(frozen=True)
class FloatGrid:
    """The values of a narrow format.

    `fraction_bits` follow the leading bit of a number of at least 2^`least_exponent`; below, values are
    2^(`least_exponent` - `fraction_bits`) apart. Beyond `largest`, numbers become infinite if the format `overflows`,
    and else saturate.
    """

    fraction_bits: int
    least_exponent: int
    largest: float
    overflows: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.fraction_bits < FRACTION_BITS:
            raise ValueError(f"`fraction_bits` = {self.fraction_bits}: fp32 holds grids of 0 to {FRACTION_BITS - 1}")
        if not 1 - BIAS <= self.least_exponent <= BIAS:
            raise ValueError(f"`least_exponent` = {self.least_exponent}: fp32 has {1 - BIAS} to {BIAS}")
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

    The scale is the least under which no element saturates; that of OCP, by the exponent of the largest element alone,
    cuts that element by up to an eighth: `floor` has it.
    """

    element: FloatGrid
    size: int = 32
    floor: bool = False

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"`size` = {self.size}: a block has an element at least")
        if self.element.overflows:
            raise ValueError("elements of a block saturate; they have no infinity")


Grid = FloatGrid | BlockGrid


class Rounding(enum.Enum):
    """To the nearest value, where two are equally near the even one or that away from zero; to zero; or by chance."""

    EVEN = 0
    AWAY = 1
    ZERO = 2
    STOCHASTIC = 3


def fixed_point(integer_bits: int, fraction_bits: int) -> FloatGrid:
    """Return the grid of fixed point, `integer_bits` with the sign; symmetrical, so that no sign costs a value.

    Raises:
        ValueError: it has no or too many bits.
    """
    bits = integer_bits + fraction_bits - 1
    if integer_bits < 1 or fraction_bits < 0 or not 1 <= bits <= FRACTION_BITS - 1:
        raise ValueError(
            f"q{integer_bits}.{fraction_bits}: should have 2 to {FRACTION_BITS} bits, one of them the sign"
        )
    return FloatGrid(bits, integer_bits - 1, float((2**bits - 1) * 2.0**-fraction_bits))
