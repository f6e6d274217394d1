"""Blocks of narrow numbers with one scale, a power of two: OCP's microscaling formats, and block floating point.

    MX    32 elements of E4M3, E5M2, E3M2, E2M3, E2M1 or INT8 (Microscaling Formats 1.0, table 1)
    BFP   B elements of fixed point

The scale is the least under which no element saturates. OCP's own, by the exponent of the largest element alone, cuts
that element by up to an eighth: `floor` has it.
"""

from __future__ import annotations

import numpy as np

from ..number import BlockGrid, Rounding
from .grid import Floats, on_grid
from .philox import Words

_LEAST_SCALE, _MOST_SCALE = -127, 127
"""Exponents that E8M0 has (section 5.4.1)."""


def on_blocks(
    values: Floats, grid: BlockGrid, axis: int, rounding: Rounding = Rounding.EVEN, words: Words | None = None
) -> Floats:
    """Return numbers rounded to blocks along an axis, from its beginning; the last block may be shorter.

    A block with an infinity or NaN becomes NaN.

    Args:
        values: any shape, C-contiguous.
        grid: the format.
        axis: along which elements share a scale.
        rounding, words: as `on_grid` takes them.
    """
    if not values.size:
        return values.copy()
    starts = np.arange(0, values.shape[axis], grid.size)
    most = np.maximum.reduceat(np.abs(values), starts, axis=axis)
    sound = np.isfinite(most)
    exponents = _scales(np.where(sound, most, np.float32(0)), grid)
    counts = np.diff([*starts, values.shape[axis]])
    of_each = np.repeat(exponents, counts, axis=axis)
    with np.errstate(under="ignore", over="ignore"):
        rounded = on_grid(np.ldexp(values, -of_each), grid.element, rounding, words)
        results: Floats = np.ldexp(rounded, of_each)
    most_held = np.float32((2 - 2.0**-grid.element.fraction_bits) * 2.0**127)  # what fp32 holds of the last scale
    np.clip(results, -most_held, most_held, out=results)
    results[~np.repeat(sound, counts, axis=axis)] = np.nan
    return results


def _scales(most: Floats, grid: BlockGrid) -> np.ndarray:
    """Return the exponent of each block's scale from its largest magnitude."""
    fractions, exponents = np.frexp(most)
    of_largest, exponent_of_largest = np.frexp(np.float32(grid.element.largest))
    scales = exponents - exponent_of_largest
    if not grid.floor:
        scales += fractions > of_largest
    return np.where(most > 0, np.clip(scales, _LEAST_SCALE, _MOST_SCALE), _LEAST_SCALE).astype(np.int32)
