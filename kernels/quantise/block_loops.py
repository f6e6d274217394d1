"""Loops over blocks, in vectors: the largest magnitude, a scaled copy, which is rounded, and back.

A chunk of a piece of memory at a time, whose copy stays in the nearest cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import compiled
from .element import MAGNITUDE, QUIET_NAN, scale_of, scaled, unscaled
from .loops import in_wide_vectors, round_piece
from .source import CHUNK, ROOM, thresholds

_PART = 32
"""Elements of the usual block."""


@compiled
def round_lines(
    values: Any, results: Any, blocks: Any, limits: Any, source: Any, words: Any, numbers: Any, counts: Any
) -> None:
    """Round blocks whose elements lie side by side, in lines of `blocks.length`."""
    held, scales, copies = np.empty(ROOM, np.uint32), np.empty(CHUNK, np.uint32), np.empty(CHUNK, np.uint32)
    held.fill(np.uint32(limits.threshold))
    block_end, line_end, scale = 0, 0, np.uint32(0)
    for row in range(0, values.size, source.row):
        for begin in range(row, row + source.row, CHUNK):
            end, place = min(begin + CHUNK, row + source.row), begin
            while place < end:
                if place == block_end:
                    line_end = line_end + blocks.length if place == line_end else line_end
                    block_end = min(place + blocks.size, line_end)
                    most = _largest(values[place:block_end])
                    scale = scale_of(most, np.uint32(limits.largest), blocks.rises)
                stop = min(block_end, end)
                _fill(scales[place - begin : stop - begin], scale)
                place = stop
            first = thresholds(begin, end - begin, source, words, numbers, held)
            kept, drawn = results[begin:end], held[first:]
            _round_scaled(values[begin:end], kept, scales, copies[: end - begin], drawn, blocks, limits, counts)


@compiled
def round_columns(
    values: Any, results: Any, blocks: Any, limits: Any, source: Any, words: Any, numbers: Any, counts: Any
) -> None:
    """Round blocks whose elements are `blocks.apart` from each other: as many blocks lie side by side."""
    held, scales, copies = np.empty(ROOM, np.uint32), np.empty(CHUNK, np.uint32), np.empty(CHUNK, np.uint32)
    held.fill(np.uint32(limits.threshold))
    for outer in range(0, values.size, blocks.length * blocks.apart):
        for top in range(0, blocks.length, blocks.size):
            height = min(blocks.size, blocks.length - top)
            for column in range(0, blocks.apart, CHUNK):
                width, corner = min(CHUNK, blocks.apart - column), outer + top * blocks.apart + column
                _find_scales(values[corner:], scales[:width], height, blocks, limits)
                for line in range(height):
                    begin = corner + line * blocks.apart
                    end = begin + width
                    first = thresholds(begin, width, source, words, numbers, held)
                    kept, drawn = results[begin:end], held[first:]
                    _round_scaled(values[begin:end], kept, scales, copies[:width], drawn, blocks, limits, counts)


@compiled
def _largest(values: Any) -> Any:
    """Return the bits of the largest magnitude."""
    most = np.uint32(0)
    whole = values.size // _PART * _PART
    for part in range(0, whole, _PART):
        one = values[part : part + _PART]
        for place in range(_PART):
            most = np.uint32(max(most, np.uint32(one[place] & np.uint32(MAGNITUDE))))
    rest = values[whole:]
    for place in range(rest.size):
        most = np.uint32(max(most, np.uint32(rest[place] & np.uint32(MAGNITUDE))))
    return most


@compiled
def _fill(numbers: Any, number: Any) -> None:
    if numbers.size == _PART:
        for place in range(_PART):
            numbers[place] = number
    else:
        for place in range(numbers.size):
            numbers[place] = number


@compiled
def _find_scales(values: Any, scales: Any, height: Any, blocks: Any, limits: Any) -> None:
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
def _round_scaled(
    values: Any, results: Any, scales: Any, copies: Any, drawn: Any, blocks: Any, limits: Any, counts: Any
) -> None:
    in_wide_vectors()
    before = after = over = np.uint32(0)
    flushed = counts[1]
    for place in range(copies.size):
        copies[place] = scaled(values[place], scales[place])
        before = np.uint32(before + _is_number(values[place], scales[place]))
    round_piece(copies, drawn, limits, counts)
    for place in range(results.size):
        whole, is_over = unscaled(copies[place], scales[place], np.uint32(blocks.largest))
        results[place] = whole
        over = np.uint32(over + np.uint32(is_over))
        after = np.uint32(after + _is_number(whole, scales[place]))
    counts[0] += over
    counts[1] = flushed + before - after


@compiled
def _is_number(bits: Any, scale: Any) -> Any:
    """Return 1 for a number that is not zero, in a block without infinity and NaN."""
    return np.uint32((np.uint32(bits & np.uint32(MAGNITUDE)) != np.uint32(0)) & (scale != np.uint32(QUIET_NAN)))
