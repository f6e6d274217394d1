"""Loops over blocks, in vectors: the largest magnitudes, scales of these, and numbers rounded under their scale.

A chunk of memory at a time, which stays in the nearest cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import FLOAT_BYTES, compiled
from .element import BY_COUNT, BY_SUM, MAGNITUDE, counted, cut_off, scale_of, scaled, summed, unscaled
from .philox import MOST_EXTRA
from .source import CHUNK, ROOM, thresholds
from .vectors import USUAL, in_wide_vectors, inlined, largest_of_block, spread

_USUAL_BYTES = FLOAT_BYTES * USUAL


@compiled
def round_lines(
    values: Any, results: Any, stays: Any, blocks: Any, limits: Any, source: Any, words: Any, numbers: Any, counts: Any
) -> None:
    """Round blocks whose elements lie side by side, in lines of `blocks.length`."""
    in_wide_vectors()
    room = max(CHUNK, min(blocks.size, blocks.length))
    held, scales = np.empty(room + MOST_EXTRA, np.uint32), np.empty(room, np.uint32)
    largest = np.empty(room, np.uint32)
    held.fill(np.uint32(limits.threshold))
    lines = max(room // blocks.length, 1) * blocks.length
    taken = lines if blocks.length <= room else room // blocks.size * blocks.size  # whole lines, or whole blocks
    for row in range(0, values.size, source.row):
        for line in range(row, row + source.row, lines):
            line_end = min(line + lines, row + source.row)
            for begin in range(line, line_end, taken):
                end = min(begin + taken, line_end)
                _find_lines(values[begin:end], scales, largest, blocks, limits)
                first = thresholds(begin, end - begin, source, words, numbers, held)
                kept = results[begin:end]
                if stays:
                    _round_scaled(kept, kept, scales, held[first:], blocks, limits, counts)
                else:
                    _round_scaled(values[begin:end], kept, scales, held[first:], blocks, limits, counts)


@compiled
def round_columns(
    values: Any, results: Any, stays: Any, blocks: Any, limits: Any, source: Any, words: Any, numbers: Any, counts: Any
) -> None:
    """Round blocks whose elements are `blocks.apart` from each other: as many blocks lie side by side."""
    in_wide_vectors()
    held, scales = np.empty(ROOM, np.uint32), np.empty(CHUNK, np.uint32)
    held.fill(np.uint32(limits.threshold))
    for outer in range(0, values.size, blocks.length * blocks.apart):
        for top in range(0, blocks.length, blocks.size):
            height = min(blocks.size, blocks.length - top)
            for column in range(0, blocks.apart, CHUNK):
                width, corner = min(CHUNK, blocks.apart - column), outer + top * blocks.apart + column
                _find_columns(values[corner:], scales[:width], height, blocks, limits)
                for line in range(height):
                    begin = corner + line * blocks.apart
                    end = begin + width
                    first = thresholds(begin, width, source, words, numbers, held)
                    kept = results[begin:end]
                    if stays:
                        _round_scaled(kept, kept, scales, held[first:], blocks, limits, counts)
                    else:
                        _round_scaled(values[begin:end], kept, scales, held[first:], blocks, limits, counts)


@compiled
def _find_lines(values: Any, scales: Any, held: Any, blocks: Any, limits: Any) -> None:
    """Write the scale of each element, for whole blocks; `held` has room for those of blocks."""
    whole, count = blocks.size == USUAL and blocks.length % USUAL == 0, 0
    if whole:
        count = values.size // USUAL
        for block in range(count):
            largest_of_block(values.ctypes.data + _USUAL_BYTES * block, held.ctypes.data + FLOAT_BYTES * block)
    else:
        for line in range(0, values.size, blocks.length):
            line_end = min(line + blocks.length, values.size)
            for begin in range(line, line_end, blocks.size):
                largest, one = np.uint32(0), values[begin : min(begin + blocks.size, line_end)]
                for place in range(one.size):
                    largest = np.uint32(max(largest, np.uint32(one[place] & np.uint32(MAGNITUDE))))
                held[count] = largest
                count += 1
    for place in range(count):
        held[place] = scale_of(held[place], np.uint32(limits.largest), blocks.rises)
    if whole:
        for block in range(count):
            spread(held.ctypes.data + FLOAT_BYTES * block, scales.ctypes.data + _USUAL_BYTES * block)
        return
    count = 0
    for line in range(0, values.size, blocks.length):
        line_end = min(line + blocks.length, values.size)
        for begin in range(line, line_end, blocks.size):
            mine = scales[begin : min(begin + blocks.size, line_end)]
            mine.fill(held[count])
            count += 1


@compiled
def _find_columns(values: Any, scales: Any, height: Any, blocks: Any, limits: Any) -> None:
    """Write the scales of blocks side by side, each of `height` elements."""
    in_wide_vectors()
    scales.fill(np.uint32(0))
    for line in range(height):
        one = values[line * blocks.apart :]
        for place in range(scales.size):
            scales[place] = max(scales[place], np.uint32(one[place] & np.uint32(MAGNITUDE)))
    for place in range(scales.size):
        scales[place] = scale_of(scales[place], np.uint32(limits.largest), blocks.rises)


@compiled
def _round_scaled(values: Any, results: Any, scales: Any, drawn: Any, blocks: Any, limits: Any, counts: Any) -> None:
    """Round the bits of numbers under their scales, by their thresholds; add to both counts."""
    inlined()
    cut, least, is_even = np.uint32(limits.cut), np.uint32(limits.least), np.uint32(limits.is_even)
    largest, most_held = np.uint32(limits.largest), np.uint32(blocks.largest)
    over = flushed = np.uint32(0)
    if limits.way == BY_SUM:
        for place in range(results.size):
            bits, scale = values[place], scales[place]
            part = scaled(bits, scale)
            whole = summed(part, cut, least, largest)
            results[place], is_over, is_flushed = unscaled(bits, part, whole, scale, largest, most_held)
            over, flushed = np.uint32(over + np.uint32(is_over)), np.uint32(flushed + np.uint32(is_flushed))
    elif limits.way == BY_COUNT:
        for place in range(results.size):
            bits, scale = values[place], scales[place]
            part = scaled(bits, scale)
            whole = counted(part, drawn[place], cut, least, is_even)
            results[place], is_over, is_flushed = unscaled(bits, part, whole, scale, largest, most_held)
            over, flushed = np.uint32(over + np.uint32(is_over)), np.uint32(flushed + np.uint32(is_flushed))
    else:
        for place in range(results.size):
            bits, scale = values[place], scales[place]
            part = scaled(bits, scale)
            whole = cut_off(part, drawn[place], cut, is_even)
            results[place], is_over, is_flushed = unscaled(bits, part, whole, scale, largest, most_held)
            over, flushed = np.uint32(over + np.uint32(is_over)), np.uint32(flushed + np.uint32(is_flushed))
    counts[0] += over
    counts[1] += flushed
