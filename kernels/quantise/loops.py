"""Loops over elements, of which LLVM makes vectors as wide as the micro-kernel's."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.extending import intrinsic

from ..form import FORM
from ..jit import compiled
from ..llvm import numbers_only
from .element import BY_COUNT, BY_HALF, BY_SUM, by_count, by_cut, by_half, by_sum
from .source import CHUNK, ROOM, thresholds

_FLOAT_BITS = 32


@intrinsic
def in_wide_vectors(context: Any) -> Any:
    """Make vectors of FORM.width floats of the loops in the function that calls this.

    LLVM itself takes half of AVX-512's width, as suits programs that seldom compute in vectors.
    """
    return numbers_only(0, _wish)


def _wish(builder: ir.IRBuilder) -> None:
    wish = f'"prefer-vector-width"="{_FLOAT_BITS * FORM.width}"'
    set.add(builder.function.attributes, wish)  # llvmlite's own `add` takes only attributes without a value


@compiled
def round_rows(
    values: Any, results: Any, stays: Any, limits: Any, source: Any, words: Any, numbers: Any, counts: Any
) -> None:
    """Round numbers, row by row of the source of thresholds; `stays` says that results and values are one array."""
    held = np.empty(ROOM, np.uint32)
    held.fill(np.uint32(limits.threshold))
    for row in range(0, values.size, source.row):
        for begin in range(row, row + source.row, CHUNK):
            end = min(begin + CHUNK, row + source.row)
            kept = results[begin:end]
            if not stays:  # LLVM makes no vectors where one array may be another, so all else is done in place
                copy(values[begin:end], kept)
            first = thresholds(begin, end - begin, source, words, numbers, held)
            round_piece(kept, held[first:], limits, counts)


@compiled
def round_piece(kept: Any, drawn: Any, limits: Any, counts: Any) -> None:
    """Round the bits of numbers in place by their thresholds; add to both counts."""
    in_wide_vectors()
    cut, least, is_even = np.uint32(limits.cut), np.uint32(limits.least), np.uint32(limits.is_even)
    largest, beyond = np.uint32(limits.largest), np.uint32(limits.beyond)
    beyond_infinity = np.uint32(limits.beyond_infinity)
    over = flushed = np.uint32(0)
    if limits.way == BY_HALF:
        for place in range(kept.size):
            kept[place], is_over, is_flushed = by_half(kept[place])
            over, flushed = np.uint32(over + np.uint32(is_over)), np.uint32(flushed + np.uint32(is_flushed))
    elif limits.way == BY_SUM:
        for place in range(kept.size):
            kept[place], is_over, is_flushed = by_sum(kept[place], cut, least, largest, beyond)
            over, flushed = np.uint32(over + np.uint32(is_over)), np.uint32(flushed + np.uint32(is_flushed))
    elif limits.way == BY_COUNT:
        for place in range(kept.size):
            kept[place], is_over, is_flushed = by_count(
                kept[place], drawn[place], cut, least, largest, beyond, beyond_infinity, is_even
            )
            over, flushed = np.uint32(over + np.uint32(is_over)), np.uint32(flushed + np.uint32(is_flushed))
    else:
        for place in range(kept.size):
            kept[place], is_over, is_flushed = by_cut(
                kept[place], drawn[place], cut, largest, beyond, beyond_infinity, is_even
            )
            over, flushed = np.uint32(over + np.uint32(is_over)), np.uint32(flushed + np.uint32(is_flushed))
    counts[0] += over
    counts[1] += flushed


@compiled
def copy(values: Any, results: Any) -> None:
    """Copy numbers."""
    for place in range(results.size):
        results[place] = values[place]
