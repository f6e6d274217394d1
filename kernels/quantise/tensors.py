"""Loops of blocks whose scales lie on a grid of their own, relative to a scale of their tensor.

    tensor   t: the least power of two under which its largest finite number is at most that of an
             element times that of a scale; 2^-126 to 2^116
    block    s: the largest number / the largest element / t, to even onto the scale's grid; at
             least its least value, so that no scale is 0
    element  number / (s t), rounded onto the element's grid; times s t

Quotients are fp32's. That decides as exact quotients would where numbers go to the nearest: a
number next to half of a step, whose multiple by a scale has few bits, is further from it than fp32
rounds. `s t` and results are exact.

A tensor is of lines side by side, or of columns, of which each is a block's or more; both lie in
memory as those of `loops.py`:

    lines, 2 a tensor               columns, 2 a tensor

    [a a a a][b b]  t               [a][b] [c][d]  top
    [c c c c][d d]  t               [a][b] [c][d]   v
    [e e e e][f f]   u               t  t   u  u
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import compiled
from .element import BY_SUM, INFINITY, MAGNITUDE, QUIET_NAN, SIGN, counted, scale_of, summed
from .loops import in_wide_vectors, inlined
from .philox import CHUNK, MOST_EXTRA, ROOM, thresholds

_ONE_BITS, _TWICE_BIAS = 0x3F800000, 0x7F000000
# Bits of 2^-116 and 2^126: the inverse scales of tensors.
_LEAST_INVERSE, _MOST_INVERSE = 11 << 23, 253 << 23


@compiled
def inverse_scale(most: Any, form: Any) -> Any:
    """Return the bits of 1 / t of a tensor, from those of its largest magnitude."""
    scale = scale_of(most, np.uint32(form.most), True)
    return np.uint32(
        min(max(scale, np.uint32(_LEAST_INVERSE)), np.uint32(_MOST_INVERSE))
        if most > np.uint32(0)
        else np.uint32(_ONE_BITS)
    )


@compiled
def factor_of(most: Any, inverse: Any, form: Any) -> Any:
    """Return the bits of s t of a block, from those of its largest magnitude and of 1 / t; NaN of a
    block with an infinity or NaN.
    """
    scale = form.scale
    share = np.float32(np.uint32(most).view(np.float32) * np.uint32(inverse).view(np.float32))
    quotient = np.float32(share / np.uint32(form.largest).view(np.float32)).view(np.uint32)
    least, largest = np.uint32(form.least), np.uint32(scale.largest)
    whole = summed(quotient, np.uint32(scale.cut), np.uint32(scale.least), largest)
    kept = np.uint32(min(max(whole, least), largest)).view(np.float32)
    tensor = np.uint32(np.uint32(_TWICE_BIAS) - np.uint32(inverse)).view(np.float32)
    factor = np.float32(kept * tensor).view(np.uint32)
    return np.uint32(QUIET_NAN) if most >= np.uint32(INFINITY) else factor


@compiled
def _finite(bits: Any) -> Any:
    """Return the bits of a number's magnitude; 0 of an infinity or NaN."""
    magnitude = np.uint32(bits & np.uint32(MAGNITUDE))
    return magnitude if magnitude < np.uint32(INFINITY) else np.uint32(0)


@compiled
def round_tensor_lines(
    values: Any,
    results: Any,
    stays: Any,
    form: Any,
    limits: Any,
    source: Any,
    words: Any,
    numbers: Any,
    counts: Any,
) -> None:
    """Round tensors of `form.together` numbers, whose blocks lie in lines of `form.length`."""
    in_wide_vectors()
    room = max(CHUNK, min(form.size, form.length))
    held, factors = np.empty(room + MOST_EXTRA, np.uint32), np.empty(room, np.uint32)
    held.fill(np.uint32(limits.threshold))
    lines = max(room // form.length, 1) * form.length
    # whole lines, or whole blocks of one
    taken = lines if form.length <= room else room // form.size * form.size
    for tensor in range(0, values.size, form.together):
        tensor_end = min(tensor + form.together, values.size)
        most = np.uint32(0)
        for place in range(tensor, tensor_end):
            most = np.uint32(max(most, _finite(values[place])))
        inverse = inverse_scale(most, form)
        for line in range(tensor, tensor_end, lines):
            line_end = min(line + lines, tensor_end)
            for begin in range(line, line_end, taken):
                end = min(begin + taken, line_end)
                _find_lines(values[begin:end], factors, inverse, form)
                first = thresholds(begin, end - begin, source, words, numbers, held)
                _round(values, results, stays, begin, end, factors, held[first:], limits, counts)


@compiled
def round_tensor_columns(
    values: Any,
    results: Any,
    stays: Any,
    form: Any,
    limits: Any,
    source: Any,
    words: Any,
    numbers: Any,
    counts: Any,
) -> None:
    """Round tensors of `form.together` columns, each of `form.length` numbers that are `form.apart`
    from each other.
    """
    in_wide_vectors()
    held, factors = np.empty(ROOM, np.uint32), np.empty(CHUNK, np.uint32)
    inverses = np.empty(form.apart, np.uint32)
    held.fill(np.uint32(limits.threshold))
    for outer in range(0, values.size, form.length * form.apart):
        inverses.fill(np.uint32(0))
        for line in range(form.length):
            one = values[outer + line * form.apart :]
            for place in range(form.apart):
                inverses[place] = max(inverses[place], _finite(one[place]))
        for tensor in range(0, form.apart, form.together):
            most = np.uint32(0)
            own = inverses[tensor : min(tensor + form.together, form.apart)]
            for place in range(own.size):
                most = np.uint32(max(most, own[place]))
            own.fill(inverse_scale(most, form))
        for top in range(0, form.length, form.size):
            height = min(form.size, form.length - top)
            for column in range(0, form.apart, CHUNK):
                width = min(CHUNK, form.apart - column)
                corner = outer + top * form.apart + column
                mine = factors[:width]
                mine.fill(np.uint32(0))
                for line in range(height):
                    one = values[corner + line * form.apart :]
                    for place in range(width):
                        magnitude = np.uint32(one[place] & np.uint32(MAGNITUDE))
                        mine[place] = max(mine[place], magnitude)
                for place in range(width):
                    mine[place] = factor_of(mine[place], inverses[column + place], form)
                for line in range(height):
                    begin = corner + line * form.apart
                    end = begin + width
                    first = thresholds(begin, width, source, words, numbers, held)
                    drawn = held[first:]
                    _round(values, results, stays, begin, end, mine, drawn, limits, counts)


@compiled
def _find_lines(values: Any, factors: Any, inverse: Any, form: Any) -> None:
    """Write the factor of each number, in lines of `form.length`."""
    for line in range(0, values.size, form.length):
        line_end = min(line + form.length, values.size)
        for begin in range(line, line_end, form.size):
            end = min(begin + form.size, line_end)
            most = np.uint32(0)
            for place in range(begin, end):
                most = np.uint32(max(most, np.uint32(values[place] & np.uint32(MAGNITUDE))))
            factors[begin:end].fill(factor_of(most, inverse, form))


@compiled
def _round(
    values: Any,
    results: Any,
    stays: Any,
    begin: Any,
    end: Any,
    factors: Any,
    drawn: Any,
    limits: Any,
    counts: Any,
) -> None:
    """Round the numbers from `begin` to `end`; `stays` says that results and values are one
    array.
    """
    kept = results[begin:end]
    if stays:  # so LLVM sees that these arrays are one, and makes vectors
        _round_shares(kept, kept, factors, drawn, limits, counts)
    else:
        _round_shares(values[begin:end], kept, factors, drawn, limits, counts)


@compiled
def _round_shares(
    values: Any, results: Any, factors: Any, drawn: Any, limits: Any, counts: Any
) -> None:
    """Round numbers as shares of their factors, by their thresholds; add to both counts."""
    inlined()
    cut, least, is_even = np.uint32(limits.cut), np.uint32(limits.least), np.uint32(limits.is_even)
    largest = np.uint32(limits.largest)
    over = flushed = np.uint32(0)
    if limits.way == BY_SUM:
        for place in range(results.size):
            bits, factor = values[place], np.uint32(factors[place]).view(np.float32)
            share = _share(bits, factor)
            whole = summed(share, cut, least, largest)
            results[place], is_over, is_flushed = _whole(bits, share, whole, factor, largest)
            over = np.uint32(over + np.uint32(is_over))
            flushed = np.uint32(flushed + np.uint32(is_flushed))
    else:
        for place in range(results.size):
            bits, factor = values[place], np.uint32(factors[place]).view(np.float32)
            share = _share(bits, factor)
            whole = counted(share, drawn[place], cut, least, is_even)
            results[place], is_over, is_flushed = _whole(bits, share, whole, factor, largest)
            over = np.uint32(over + np.uint32(is_over))
            flushed = np.uint32(flushed + np.uint32(is_flushed))
    counts[0] += over
    counts[1] += flushed


@compiled
def _share(bits: Any, factor: Any) -> Any:
    """Return the bits of a number's magnitude over a block's factor."""
    magnitude = np.uint32(bits & np.uint32(MAGNITUDE)).view(np.float32)
    return np.uint32(np.float32(magnitude / factor).view(np.uint32) & np.uint32(MAGNITUDE))


@compiled
def _whole(bits: Any, share: Any, whole: Any, factor: Any, largest: Any) -> Any:
    """Return the bits of `whole`, at most `largest`, times a factor: the rounded `share`."""
    held = np.float32(np.uint32(min(whole, largest)).view(np.float32) * factor).view(np.uint32)
    is_nan = share > np.uint32(INFINITY)
    result = np.uint32(held | np.uint32(bits & np.uint32(SIGN)))
    is_flushed = (whole == np.uint32(0)) & (np.uint32(bits & np.uint32(MAGNITUDE)) != np.uint32(0))
    is_over = (whole > largest) & (not is_nan)
    return np.uint32(QUIET_NAN) if is_nan else result, is_over, is_flushed & (not is_nan)
