"""Loops over elements, of which LLVM makes vectors as wide as the micro-kernel's."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import compiled
from .element import BY_COUNT, BY_HALF, BY_SUM, MAGNITUDE, QUIET_NAN, by_half, counted, cut_off, limited, summed
from .source import CHUNK, ROOM, thresholds
from .vectors import in_wide_vectors, inlined


@compiled
def round_rows(
    values: Any, results: Any, stays: Any, limits: Any, source: Any, words: Any, numbers: Any, counts: Any
) -> None:
    """Round numbers, row by row of the source of thresholds; `stays` says that results and values are one array."""
    in_wide_vectors()
    held = np.empty(ROOM, np.uint32)
    held.fill(np.uint32(limits.threshold))
    for row in range(0, values.size, source.row):
        for begin in range(row, row + source.row, CHUNK):
            end = min(begin + CHUNK, row + source.row)
            first, kept = thresholds(begin, end - begin, source, words, numbers, held), results[begin:end]
            if stays:
                round_piece(kept, kept, held[first:], limits, counts)
            else:
                round_piece(values[begin:end], kept, held[first:], limits, counts)


@compiled
def round_piece(values: Any, results: Any, drawn: Any, limits: Any, counts: Any) -> None:
    """Round the bits of numbers by their thresholds; add to both counts."""
    inlined()
    cut, least, is_even = np.uint32(limits.cut), np.uint32(limits.least), np.uint32(limits.is_even)
    largest, beyond = np.uint32(limits.largest), np.uint32(limits.beyond)
    beyond_infinity, nan = np.uint32(limits.beyond_infinity), np.uint32(QUIET_NAN)
    over = flushed = np.uint32(0)
    if limits.way == BY_HALF:
        for place in range(results.size):
            results[place], is_over, is_flushed = by_half(values[place])
            over, flushed = np.uint32(over + np.uint32(is_over)), np.uint32(flushed + np.uint32(is_flushed))
    elif limits.way == BY_SUM:
        for place in range(results.size):
            bits = values[place]
            whole = summed(np.uint32(bits & np.uint32(MAGNITUDE)), cut, least, largest)
            results[place], is_over, is_flushed = limited(bits, whole, largest, beyond, beyond_infinity, bits)
            over, flushed = np.uint32(over + np.uint32(is_over)), np.uint32(flushed + np.uint32(is_flushed))
    elif limits.way == BY_COUNT:
        for place in range(results.size):
            bits = values[place]
            whole = counted(np.uint32(bits & np.uint32(MAGNITUDE)), drawn[place], cut, least, is_even)
            results[place], is_over, is_flushed = limited(bits, whole, largest, beyond, beyond_infinity, nan)
            over, flushed = np.uint32(over + np.uint32(is_over)), np.uint32(flushed + np.uint32(is_flushed))
    else:
        for place in range(results.size):
            bits = values[place]
            whole = cut_off(np.uint32(bits & np.uint32(MAGNITUDE)), drawn[place], cut, is_even)
            results[place], is_over, is_flushed = limited(bits, whole, largest, beyond, beyond_infinity, nan)
            over, flushed = np.uint32(over + np.uint32(is_over)), np.uint32(flushed + np.uint32(is_flushed))
    counts[0] += over
    counts[1] += flushed
