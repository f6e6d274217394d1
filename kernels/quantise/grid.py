"""Four ways to round onto the grid of a narrow format within fp32.

All arithmetic is on the bits of fp32 numbers, as in hardware: what is cut off decides, and no sum is rounded twice.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..jit import compiled
from ..number import BF16, BIAS, FRACTION_BITS, FloatGrid, Rounding
from .philox import Words

Floats = NDArray[np.float32]

_FRACTION, _BIAS = FRACTION_BITS, BIAS
_INFINITY, _QUIET_NAN = 0x7F800000, 0x7FC00000
_MOST_CUT = 60
_CHUNK = 1024
_BIGGEST_SUM = 2.0**100
"""Grids up to here are rounded by sums, which do not overflow."""


_EVEN, _AWAY, _ZERO, _STOCHASTIC = (rounding.value for rounding in Rounding)


def on_grid(values: Floats, grid: FloatGrid, rounding: Rounding = Rounding.EVEN, words: Words | None = None) -> Floats:
    """Return numbers rounded onto a grid; NaN stays NaN.

    Args:
        values: any shape, C-contiguous.
        grid: the format.
        rounding: how. By chance, a number goes up where its word is below the 32 bits that are cut off, as a fraction.
        words: random numbers, one for each value, in the order of memory; for stochastic rounding alone.
    """
    results = np.empty_like(values)
    flat, rounded = values.reshape(-1), results.reshape(-1)
    bits, rounded_bits = flat.view(np.uint32), rounded.view(np.uint32)
    if rounding is Rounding.EVEN and grid == BF16.grid:
        _cut_half(bits, rounded_bits)
    elif rounding is Rounding.EVEN and grid.largest < _BIGGEST_SUM:
        anchors = np.empty(_CHUNK, np.uint32)
        limit = np.float32(2 * grid.largest)
        _round_by_sums(
            (flat, bits, rounded),
            (anchors, anchors.view(np.float32)),
            (grid.least_exponent + _BIAS) << _FRACTION,
            int(limit.view(np.uint32)) & _INFINITY,
            (_FRACTION - grid.fraction_bits) << _FRACTION,
            (limit, np.float32(grid.largest), np.float32(np.inf if grid.overflows else grid.largest)),
        )
    else:
        chances = np.zeros(1, np.uint32) if words is None else words.reshape(-1)
        largest = int(np.float32(grid.largest).view(np.uint32))
        limits = grid.fraction_bits, grid.least_exponent, largest, grid.overflows
        _round(bits, rounded_bits, chances, *limits, rounding.value)
    return results


@compiled
def _cut_half(bits: Any, results: Any) -> None:
    """Round to the upper half of each number, which is bf16: what is carried out of the fraction is the exponent's."""
    for place in range(bits.size):
        value = bits[place]
        rounded = (value + np.uint32(0x7FFF) + ((value >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
        is_nan = value & np.uint32(0x7FFFFFFF) > np.uint32(_INFINITY)
        results[place] = np.uint32(_QUIET_NAN) if is_nan else rounded


@compiled
def _round_by_sums(arrays: Any, anchors: Any, least_bits: Any, most_bits: Any, step_bits: Any, limits: Any) -> None:
    """Round to even by adding a number so large that fp32 keeps the grid's bits alone, and subtracting it again."""
    values, bits, results = arrays
    anchor_bits, anchor = anchors
    limit, largest, beyond = limits
    least, most, step = np.uint32(least_bits), np.uint32(most_bits), np.uint32(step_bits)
    for begin in range(0, values.size, _CHUNK):
        count = min(_CHUNK, values.size - begin)
        for place in range(count):
            exponent = bits[begin + place] & np.uint32(_INFINITY)
            exponent = least if exponent < least else exponent
            anchor_bits[place] = (most if exponent > most else exponent) + step
        for place in range(count):
            value = values[begin + place]
            magnitude = abs(value)
            held = magnitude if magnitude < limit else limit
            rounded = (held + anchor[place]) - anchor[place]
            rounded = beyond if rounded > largest else rounded
            results[begin + place] = np.copysign(rounded, value) if value == value else value


@compiled
def _round(
    bits: Any,
    results: Any,
    words: Any,
    fraction_bits: Any,
    least_exponent: Any,
    largest: Any,
    overflows: Any,
    rounding: Any,
) -> None:
    cut = _FRACTION - fraction_bits
    for place in range(bits.size):
        value = np.int64(bits[place])
        magnitude, sign = value & 0x7FFFFFFF, value & 0x80000000
        exponent = magnitude >> _FRACTION
        if magnitude > _INFINITY:
            results[place] = np.uint32(_QUIET_NAN)
            continue
        is_spaced_alike = exponent - _BIAS < least_exponent and (exponent > 0 or least_exponent > 1 - _BIAS)
        number, dropped, up = magnitude, cut, np.bool_(False)
        if is_spaced_alike:
            number = magnitude & 0x7FFFFF
            if exponent > 0:
                number += 0x800000
            dropped = min(_MOST_CUT, least_exponent - fraction_bits + 150 - max(exponent, 1))
        count = number >> dropped
        below, half = number - (count << dropped), np.int64(1) << (dropped - 1)
        if rounding == _EVEN:
            up = below > half or (below == half and count & 1 == 1)
        elif rounding == _AWAY:
            up = below >= half
        elif rounding == _STOCHASTIC:
            fraction = below << (32 - dropped) if dropped <= 32 else below >> (dropped - 32)
            up = np.int64(words[place]) < fraction
        if up:
            count += 1
        whole = count << cut
        if is_spaced_alike:
            # At most 2^fraction_bits steps below the least exponent: count 2^step as the bits of an fp32 number.
            whole = np.int64(0)
            if count > 0:
                length = np.int64(0)
                while count >> (length + 1) > 0:
                    length += 1
                top = least_exponent - fraction_bits + length + _BIAS
                whole = (top << _FRACTION) | ((count << (_FRACTION - length)) & 0x7FFFFF)
        if whole > largest:
            whole = np.int64(_INFINITY) if overflows and (rounding != _ZERO or magnitude == _INFINITY) else largest
        results[place] = np.uint32(whole | sign)
