"""Loops of the quantisers over numbers and over blocks, of which LLVM makes vectors as wide as the
micro-kernel's.

Blocks: the largest magnitudes, scales of these, and numbers rounded under their scale. An array is
taken a chunk of memory at a time, which stays in the nearest cache. Blocks lie in lines or in
columns, of which those side by side are taken together:

    round_lines                      round_columns

    [a a a a][b b b b][c c]          [a][b][c][d][e] ..  top
    [d d d d][e e e e][f f]          [a][b][c][d][e] ..   | `blocks.size` lines, `blocks.apart` numbers apart
                                     [a][b][c][d][e] ..   v
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.extending import intrinsic

from ..form import FORM
from ..jit import FLOAT_BYTES, compiled
from ..llvm import INT, broadcast, numbers_only
from .element import (
    BY_COUNT,
    BY_HALF,
    BY_SUM,
    INFINITY,
    MAGNITUDE,
    QUIET_NAN,
    by_half,
    counted,
    cut_off,
    limited,
    scale_of,
    scaled,
    summed,
    unscaled,
)
from .philox import CHUNK, MOST_EXTRA, ROOM, thresholds

USUAL = 32
"""Elements of a block of OCP's formats: their loops have no checks for other sizes."""
_FLOAT_BITS = 32
_BLOCK = ir.VectorType(INT, USUAL)


@intrinsic
def in_wide_vectors(context: Any) -> Any:
    """Make vectors of FORM.width floats of the loops in the function that calls this, and in those
    that are inlined.

    LLVM itself takes half of AVX-512's width, as suits programs that seldom compute in vectors.
    """
    return numbers_only(
        0, lambda builder: _add(builder, f'"prefer-vector-width"="{_FLOAT_BITS * FORM.width}"')
    )


@intrinsic
def inlined(context: Any) -> Any:
    """Inline the function that calls this wherever it is called: LLVM then sees which of its arrays
    are the same one.

    It makes vectors where arrays are one, or, when the function runs, share nothing.
    """
    return numbers_only(0, lambda builder: _add(builder, "alwaysinline"))


def _add(builder: ir.IRBuilder, attribute: str) -> None:
    set.add(
        builder.function.attributes, attribute
    )  # llvmlite's own `add` takes only attributes without a value


@intrinsic
def largest_of_block(context: Any, values: Any, out: Any) -> Any:
    """Write the largest magnitude of USUAL numbers, whose bits begin at the address `values`, to
    the address `out`.
    """

    def generate(builder: ir.IRBuilder, values: ir.Value, out: ir.Value) -> None:
        bits = builder.load(builder.inttoptr(values, _BLOCK.as_pointer()), align=FLOAT_BYTES)
        sizes = builder.and_(bits, ir.Constant(_BLOCK, [MAGNITUDE] * USUAL))
        name = f"llvm.vector.reduce.umax.v{USUAL}i32"
        reduce = builder.module.globals.get(name) or ir.Function(
            builder.module, ir.FunctionType(INT, [_BLOCK]), name
        )
        builder.store(
            builder.call(reduce, [sizes]),
            builder.inttoptr(out, INT.as_pointer()),
            align=FLOAT_BYTES,
        )

    return numbers_only(2, generate)


@intrinsic
def spread(context: Any, value: Any, out: Any) -> Any:
    """Write the 32 bits at the address `value` to USUAL places from the address `out` on."""

    def generate(builder: ir.IRBuilder, value: ir.Value, out: ir.Value) -> None:
        one = builder.load(builder.inttoptr(value, INT.as_pointer()), align=FLOAT_BYTES)
        builder.store(
            broadcast(builder, one, USUAL),
            builder.inttoptr(out, _BLOCK.as_pointer()),
            align=FLOAT_BYTES,
        )

    return numbers_only(2, generate)


@compiled
def round_rows(
    values: Any,
    results: Any,
    stays: Any,
    limits: Any,
    source: Any,
    words: Any,
    numbers: Any,
    counts: Any,
) -> None:
    """Round numbers, row by row of the source of thresholds; `stays` says that results and values
    are one array.
    """
    in_wide_vectors()
    held = np.empty(ROOM, np.uint32)
    held.fill(
        np.uint32(limits.threshold)
    )  # where numbers have one threshold, `thresholds` writes none
    for row in range(0, values.size, source.row):
        for begin in range(row, row + source.row, CHUNK):
            end = min(begin + CHUNK, row + source.row)
            first, kept = (
                thresholds(begin, end - begin, source, words, numbers, held),
                results[begin:end],
            )
            if stays:  # one call for each case, inlined: so LLVM sees that these arrays are one, and makes vectors
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
            over, flushed = (
                np.uint32(over + np.uint32(is_over)),
                np.uint32(flushed + np.uint32(is_flushed)),
            )
    elif limits.way == BY_SUM:
        for place in range(results.size):
            bits = values[place]
            whole = summed(np.uint32(bits & np.uint32(MAGNITUDE)), cut, least, largest)
            results[place], is_over, is_flushed = limited(
                bits, whole, largest, beyond, beyond_infinity, bits
            )
            over, flushed = (
                np.uint32(over + np.uint32(is_over)),
                np.uint32(flushed + np.uint32(is_flushed)),
            )
    elif limits.way == BY_COUNT:
        for place in range(results.size):
            bits = values[place]
            whole = counted(
                np.uint32(bits & np.uint32(MAGNITUDE)), drawn[place], cut, least, is_even
            )
            results[place], is_over, is_flushed = limited(
                bits, whole, largest, beyond, beyond_infinity, nan
            )
            over, flushed = (
                np.uint32(over + np.uint32(is_over)),
                np.uint32(flushed + np.uint32(is_flushed)),
            )
    else:
        for place in range(results.size):
            bits = values[place]
            whole = cut_off(np.uint32(bits & np.uint32(MAGNITUDE)), drawn[place], cut, is_even)
            results[place], is_over, is_flushed = limited(
                bits, whole, largest, beyond, beyond_infinity, nan
            )
            over, flushed = (
                np.uint32(over + np.uint32(is_over)),
                np.uint32(flushed + np.uint32(is_flushed)),
            )
    counts[0] += over
    counts[1] += flushed


@compiled
def round_under_scale(
    bits: Any, scale: Any, limits: Any, source: Any, words: Any, numbers: Any, counts: Any
) -> None:
    """Round numbers in place under a scale of all: they are multiplied by `scale.down`, rounded,
    and multiplied by `scale.up`. The largest finite magnitude before goes to `scale.largest`.
    """
    in_wide_vectors()
    down, up, most = np.float32(scale.down), np.float32(scale.up), np.uint32(0)
    for place in range(bits.size):
        magnitude = np.uint32(bits[place] & np.uint32(MAGNITUDE))
        most = max(most, magnitude if magnitude < np.uint32(INFINITY) else np.uint32(0))
        bits[place] = np.float32(np.uint32(bits[place]).view(np.float32) * down).view(np.uint32)
    scale.largest[0] = max(scale.largest[0], np.uint32(most).view(np.float32))
    round_rows(bits, bits, True, limits, source, words, numbers, counts)
    for place in range(bits.size):
        bits[place] = np.float32(np.uint32(bits[place]).view(np.float32) * up).view(np.uint32)


_USUAL_BYTES = FLOAT_BYTES * USUAL


@compiled
def round_lines(
    values: Any,
    results: Any,
    stays: Any,
    blocks: Any,
    limits: Any,
    source: Any,
    words: Any,
    numbers: Any,
    counts: Any,
) -> None:
    """Round blocks whose elements lie side by side, in lines of `blocks.length`."""
    in_wide_vectors()
    room = max(CHUNK, min(blocks.size, blocks.length))
    held, scales = np.empty(room + MOST_EXTRA, np.uint32), np.empty(room, np.uint32)
    largest = np.empty(room, np.uint32)
    held.fill(np.uint32(limits.threshold))
    lines = max(room // blocks.length, 1) * blocks.length
    taken = (
        lines if blocks.length <= room else room // blocks.size * blocks.size
    )  # whole lines, or whole blocks
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
                    _round_scaled(
                        values[begin:end], kept, scales, held[first:], blocks, limits, counts
                    )


@compiled
def round_columns(
    values: Any,
    results: Any,
    stays: Any,
    blocks: Any,
    limits: Any,
    source: Any,
    words: Any,
    numbers: Any,
    counts: Any,
) -> None:
    """Round blocks whose elements are `blocks.apart` from each other: as many blocks lie side by
    side.
    """
    in_wide_vectors()
    held, scales = np.empty(ROOM, np.uint32), np.empty(CHUNK, np.uint32)
    held.fill(np.uint32(limits.threshold))
    for outer in range(0, values.size, blocks.length * blocks.apart):
        for top in range(0, blocks.length, blocks.size):
            height = min(blocks.size, blocks.length - top)
            for column in range(0, blocks.apart, CHUNK):
                width, corner = (
                    min(CHUNK, blocks.apart - column),
                    outer + top * blocks.apart + column,
                )
                _find_columns(values[corner:], scales[:width], height, blocks, limits)
                for line in range(height):
                    begin = corner + line * blocks.apart
                    end = begin + width
                    first = thresholds(begin, width, source, words, numbers, held)
                    kept = results[begin:end]
                    if stays:
                        _round_scaled(kept, kept, scales, held[first:], blocks, limits, counts)
                    else:
                        _round_scaled(
                            values[begin:end], kept, scales, held[first:], blocks, limits, counts
                        )


@compiled
def _find_lines(values: Any, scales: Any, held: Any, blocks: Any, limits: Any) -> None:
    """Write the scale of each element, for whole blocks; `held` has room for those of blocks."""
    whole, count = blocks.size == USUAL and blocks.length % USUAL == 0, 0
    if whole:
        count = values.size // USUAL
        for block in range(count):
            largest_of_block(
                values.ctypes.data + _USUAL_BYTES * block, held.ctypes.data + FLOAT_BYTES * block
            )
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
            spread(
                held.ctypes.data + FLOAT_BYTES * block, scales.ctypes.data + _USUAL_BYTES * block
            )
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
def _round_scaled(
    values: Any, results: Any, scales: Any, drawn: Any, blocks: Any, limits: Any, counts: Any
) -> None:
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
            results[place], is_over, is_flushed = unscaled(
                bits, part, whole, scale, largest, most_held
            )
            over, flushed = (
                np.uint32(over + np.uint32(is_over)),
                np.uint32(flushed + np.uint32(is_flushed)),
            )
    elif limits.way == BY_COUNT:
        for place in range(results.size):
            bits, scale = values[place], scales[place]
            part = scaled(bits, scale)
            whole = counted(part, drawn[place], cut, least, is_even)
            results[place], is_over, is_flushed = unscaled(
                bits, part, whole, scale, largest, most_held
            )
            over, flushed = (
                np.uint32(over + np.uint32(is_over)),
                np.uint32(flushed + np.uint32(is_flushed)),
            )
    else:
        for place in range(results.size):
            bits, scale = values[place], scales[place]
            part = scaled(bits, scale)
            whole = cut_off(part, drawn[place], cut, is_even)
            results[place], is_over, is_flushed = unscaled(
                bits, part, whole, scale, largest, most_held
            )
            over, flushed = (
                np.uint32(over + np.uint32(is_over)),
                np.uint32(flushed + np.uint32(is_flushed)),
            )
    counts[0] += over
    counts[1] += flushed
