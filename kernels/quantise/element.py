"""Roundings of one number onto the grid of a narrow format, for use in loops of kernels, which LLVM
makes vectors of.

All arithmetic is on the bits of fp32 numbers, as in hardware: what is cut off decides, and no sum
is rounded twice. `summed`, `counted` and `cut_off` round a magnitude as if the grid had no end,
`limited` and `unscaled` then keep it within. These and `by_half` return the bits of the result, and
two flags: whether a finite number went beyond the largest one, and whether one that was not zero
became so.

Numba makes 64 bits of a sum of 32 bits, so each step is cast back.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from ..jit import compiled
from ..number import BF16, BIAS, FRACTION_BITS, FloatGrid, Rounding

_FRACTION, _BIAS = FRACTION_BITS, BIAS
INFINITY, QUIET_NAN, MAGNITUDE, SIGN = 0x7F800000, 0x7FC00000, 0x7FFFFFFF, 0x80000000
"""Bits of fp32: of infinity, of NaN; all but the sign, and the sign."""
# 2^-127, the least scale, is subnormal in fp32: half of the least normal number, 0x800000.
_ONES, _STEP, _LEAST_SCALE = 0xFFFFFFFF, 0x800000, 0x400000
_BIGGEST_SUM = 2.0**100
_RAISED, _MOST_SCALE = 24, 127
_ONE, _TWICE_BIAS = BIAS << FRACTION_BITS, 2 * BIAS << FRACTION_BITS

_THRESHOLDS = {
    Rounding.EVEN: 0x80000000,
    Rounding.AWAY: 0x7FFFFFFF,
    Rounding.ZERO: _ONES,
    Rounding.STOCHASTIC: 0,
}

BY_HALF, BY_SUM, BY_COUNT, BY_CUT = range(4)
"""The ways to round, each for some grids and roundings."""


class Limits(NamedTuple):
    """A grid and a rounding, as kernels take them: the way, bits of fp32 numbers, and the threshold
    where it is one.
    """

    way: int
    cut: int
    least: int
    largest: int
    beyond: int
    beyond_infinity: int
    is_even: int
    threshold: int


@functools.cache
def limits_of(grid: FloatGrid, rounding: Rounding) -> Limits:
    """Return the limits of a rounding onto a grid.

    Raises:
        ValueError: numbers of the grid are spaced alike from near fp32's own least exponent.
    """
    largest, least, is_even = (
        bits_of(grid.largest),
        grid.least_exponent + _BIAS,
        rounding is Rounding.EVEN,
    )
    way = BY_CUT if least == 1 else BY_COUNT
    if is_even and grid == BF16.grid:
        way = BY_HALF
    elif is_even and grid.largest < _BIGGEST_SUM:
        way = BY_SUM
    elif 1 < least <= grid.fraction_bits:
        raise ValueError(
            f"{grid}: `least_exponent` should be {1 - _BIAS}, or above {grid.fraction_bits - _BIAS}"
        )
    return Limits(
        way=way,
        cut=_FRACTION - grid.fraction_bits,
        least=least << _FRACTION,
        largest=largest,
        beyond=INFINITY if grid.overflows and rounding is not Rounding.ZERO else largest,
        beyond_infinity=INFINITY if grid.overflows else largest,
        is_even=int(is_even),
        threshold=_THRESHOLDS[rounding],
    )


def bits_of(value: float | np.float32) -> int:
    return int(np.float32(value).view(np.uint32))


@compiled
def by_half(bits: Any) -> Any:
    """Round to the upper half, to even, which is bf16: what is carried out of the fraction is the
    exponent's.
    """
    half = np.uint32(np.uint32(0x7FFF) + np.uint32(np.uint32(bits >> np.uint32(16)) & np.uint32(1)))
    rounded = np.uint32(np.uint32(bits + half) & np.uint32(0xFFFF0000))
    magnitude = np.uint32(bits & np.uint32(MAGNITUDE))
    is_over = np.uint32(magnitude - np.uint32(INFINITY - 0x8000)) < np.uint32(0x8000)
    is_flushed = np.uint32(magnitude - np.uint32(1)) < np.uint32(0x8000)
    return np.uint32(QUIET_NAN) if magnitude > np.uint32(INFINITY) else rounded, is_over, is_flushed


@compiled
def summed(magnitude: Any, cut: Any, least: Any, largest: Any) -> Any:
    """Round to even by adding a number so large that fp32 keeps the grid's bits alone, and
    subtracting it again.
    """
    held = np.uint32(
        min(magnitude, np.uint32(largest + np.uint32(_STEP)))
    )  # at most twice the largest
    exponent = max(np.uint32(held & np.uint32(INFINITY)), least)
    anchor = np.uint32(exponent + np.uint32(cut << np.uint32(_FRACTION))).view(np.float32)
    return np.float32((held.view(np.float32) + anchor) - anchor).view(np.uint32)


@compiled
def counted(magnitude: Any, threshold: Any, cut: Any, least: Any, is_even: Any) -> Any:
    """Count the grid's steps in a number; one more where a threshold is below the rest, 32 bits of
    a fraction.

    To even, the threshold of an odd count is 1 less. Scaling by powers of two is exact.
    """
    held = np.uint32(min(magnitude, np.uint32(INFINITY - 1)))
    exponent = max(np.uint32(held & np.uint32(INFINITY)), least)
    fraction_bits = np.uint32(np.uint32(_FRACTION) - cut)
    top = np.uint32(np.uint32(np.uint32(2 * _BIAS) + fraction_bits) << np.uint32(_FRACTION))
    scale = np.uint32(max(np.uint32(top - exponent), np.uint32(_LEAST_SCALE))).view(np.float32)
    steps = held.view(np.float32) * scale
    count = np.int32(steps)
    fraction = np.uint32((steps - np.float32(count)) * np.float32(2.0**32))
    odd = np.uint32(np.uint32(count) & is_even)
    up = np.int32(np.uint32(threshold - odd) < fraction)
    step = np.uint32(exponent - np.uint32(fraction_bits << np.uint32(_FRACTION))).view(np.float32)
    return np.float32(np.float32(np.int32(count + up)) * step).view(np.uint32)


@compiled
def cut_off(magnitude: Any, threshold: Any, cut: Any, is_even: Any) -> Any:
    """Cut the last bits off, and go up, into the exponent if need be, where a threshold is below
    what is cut off.
    """
    places = np.uint32(cut & np.uint32(31))  # LLVM then shifts 32 bits
    odd = np.uint32(np.uint32(magnitude >> places) & is_even)
    below = np.uint32(np.uint32(threshold - odd) ^ np.uint32(_ONES))
    below = np.uint32(below >> np.uint32(np.uint32(np.uint32(32) - places) & np.uint32(31)))
    return np.uint32(np.uint32(np.uint32(magnitude + below) >> places) << places)


@compiled
def limited(
    bits: Any, whole: Any, largest: Any, beyond: Any, beyond_infinity: Any, nan: Any
) -> Any:
    """Return the bits of a number whose magnitude was rounded to `whole`; NaN becomes `nan`."""
    magnitude = np.uint32(bits & np.uint32(MAGNITUDE))
    is_beyond, is_finite = whole > largest, magnitude < np.uint32(INFINITY)
    top = beyond if is_finite else beyond_infinity
    result = np.uint32(np.uint32(top if is_beyond else whole) | np.uint32(bits & np.uint32(SIGN)))
    is_flushed = (whole == np.uint32(0)) & (magnitude != np.uint32(0))
    return nan if magnitude > np.uint32(INFINITY) else result, is_beyond & is_finite, is_flushed


@compiled
def scale_of(most: Any, largest: Any, rises: Any) -> Any:
    """Return the bits of 2^-s, the inverse of the scale 2^s of a block, from the bits of its
    largest magnitude.

    They have no fraction: 0 stands for 2^-127. Of a block with infinity or NaN, it is NaN. With
    `rises`, the scale is the least under which the largest number does not saturate.
    """
    is_small = most < np.uint32(_STEP)
    # A subnormal number has no exponent to read: times 2^24 it is normal, and 24 is taken off
    # below.
    raised = np.float32(np.uint32(most).view(np.float32) * np.float32(2.0**_RAISED)).view(np.uint32)
    normal = np.uint32(raised if is_small else most)
    steps = np.int32(np.uint32(normal >> np.uint32(_FRACTION))) - np.int32(
        np.uint32(largest >> np.uint32(_FRACTION))
    )
    is_above = np.uint32(normal & np.uint32(_STEP - 1)) > np.uint32(largest & np.uint32(_STEP - 1))
    steps = np.int32(steps - np.int32(_RAISED if is_small else 0) + np.int32(is_above & rises))
    steps = np.int32(min(max(steps, np.int32(-_MOST_SCALE)), np.int32(_MOST_SCALE)))
    scale = np.uint32(np.uint32(np.int32(_BIAS) - steps) << np.uint32(_FRACTION))
    scale = np.uint32(_ONE) if most == np.uint32(0) else scale
    return np.uint32(QUIET_NAN) if most >= np.uint32(INFINITY) else scale


@compiled
def scaled(bits: Any, scale: Any) -> Any:
    """Return the bits of a number's magnitude times 2^-s."""
    factor = np.uint32(max(scale, np.uint32(_LEAST_SCALE))).view(np.float32)
    return np.uint32(
        np.float32(np.uint32(bits).view(np.float32) * factor).view(np.uint32) & np.uint32(MAGNITUDE)
    )


@compiled
def unscaled(
    bits: Any, magnitude: Any, whole: Any, scale: Any, largest: Any, most_held: Any
) -> Any:
    """Return the bits of `whole`, at most `largest`, times 2^s, at most `most_held`: the rounded
    `magnitude`.

    `bits` is the number as it was, before it was scaled to `magnitude`.
    """
    factor = np.uint32(
        max(np.uint32(np.uint32(_TWICE_BIAS) - scale), np.uint32(_LEAST_SCALE))
    ).view(np.float32)
    held = np.float32(np.uint32(min(whole, largest)).view(np.float32) * factor).view(np.uint32)
    is_nan, is_over = magnitude > np.uint32(INFINITY), (whole > largest) | (held > most_held)
    result = np.uint32(np.uint32(min(held, most_held)) | np.uint32(bits & np.uint32(SIGN)))
    is_flushed = (held == np.uint32(0)) & (np.uint32(bits & np.uint32(MAGNITUDE)) != np.uint32(0))
    return np.uint32(QUIET_NAN) if is_nan else result, is_over & (not is_nan), is_flushed
