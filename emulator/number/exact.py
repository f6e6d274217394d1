"""How many bits an exact sum of products takes."""

from __future__ import annotations

import math

from ...kernels.number import BIAS, FRACTION_BITS, BlockGrid, FloatGrid, NumberFormat

_SINGLE = FloatGrid(FRACTION_BITS - 1, 1 - BIAS, float(2.0**BIAS))


def sum_bits(one: NumberFormat, other: NumberFormat, count: int) -> int:
    """Return the bits of a sum of `count` products of two formats, from the last bit that a product
    may have on, its sign left out; elements of blocks have one scale.
    """
    return math.ceil(math.log2(count) + _digits(one) + _digits(other))


def _digits(number: NumberFormat) -> float:
    """Return the logarithm of the largest value over the least distance of two."""
    grid = number.grid
    element = grid.element if isinstance(grid, BlockGrid) else grid
    if element is None:  # fp32, whose fraction has a bit more than any narrow grid
        element = _SINGLE
        return math.log2(element.largest) + 1 - math.log2(element.spacing) + 1
    return math.log2(element.largest) - math.log2(element.spacing)
