"""Transposition of blocks of floats in registers, as LLVM IR."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.extending import intrinsic

from ..jit import FLOAT_BYTES
from ..llvm import (
    INDEX,
    LINE_BYTES,
    address,
    bits_to_mask,
    entry_of,
    index,
    lane_bits,
    masked_load,
    masked_store,
    numbers_only,
    prefetch,
    shuffle,
    vector,
)

SIDE = 16  # rows and columns of a block
HALF = SIDE // 2


def _transposed(builder: ir.IRBuilder, rows: list[ir.Value]) -> list[ir.Value]:
    """Transpose SIDE vectors, in four rounds of shuffles that interleave pairs of vectors.

    The first two rounds transpose blocks of 4 x 4, the last two the 4 x 4 blocks as a whole. All shuffles are of kinds
    that AVX-512 does in one instruction.
    """
    quads = range(0, SIDE, 4)
    singles = [[4 * (i // 4) + half + i // 2 % 2 + SIDE * (i % 2) for i in range(SIDE)] for half in (0, 2)]
    doubles = [[4 * (i // 4) + half + i % 2 + SIDE * (i // 2 % 2) for i in range(SIDE)] for half in (0, 2)]
    halves = [[4 * q + i for q in (half, half + 2) for i in range(4)] for half in (0, 1)]
    blocks = [half + [SIDE + place for place in half] for half in halves]
    columns = []  # columns[n][c]: in block g, column 4 g + c of rows 4 n .. 4 n + 3
    for n in quads:
        pairs = [[shuffle(builder, rows[m], rows[m + 1], places) for places in singles] for m in (n, n + 2)]
        columns.append([shuffle(builder, pairs[0][i], pairs[1][i], places) for i in (0, 1) for places in doubles])
    result: list[ir.Value] = [None] * SIDE
    for c in range(4):
        for g, places in enumerate(blocks):
            low = shuffle(builder, columns[0][c], columns[1][c], places)
            high = shuffle(builder, columns[2][c], columns[3][c], places)
            result[4 * g + c] = shuffle(builder, low, high, blocks[0])
            result[4 * (g + 2) + c] = shuffle(builder, low, high, blocks[1])
    return result


def _lines(builder: ir.IRBuilder, base: ir.Value, step: ir.Value) -> list[ir.Value]:
    """Return the address of each line of a block."""
    return [address(builder, base, builder.mul(index(number), step), vector(SIDE)) for number in range(SIDE)]


def _some_lines(
    builder: ir.IRBuilder, base: ir.Value, step: ir.Value, count: ir.Value, run: ir.Value
) -> list[tuple[ir.Value, ir.Value]]:
    """Return address and mask of each line; a line beyond `count` repeats the last one, with an empty mask."""
    found, offset, full = [], index(0), lane_bits(builder, run)
    for number in range(SIDE):
        known = builder.icmp_signed("<", index(number), count)
        offset = builder.add(offset, builder.select(known, step, index(0))) if number else offset
        mask = bits_to_mask(builder, builder.select(known, full, index(0)), SIDE)
        found.append((address(builder, base, offset, vector(SIDE)), mask))
    return found


@intrinsic
def transpose_block(
    context: Any, source: Any, source_step: Any, rows: Any, columns: Any, out: Any, out_step: Any
) -> Any:
    """Set out[j * out_step + i] = source[i * source_step + j] for i < rows and j < columns, both from 1 to SIDE.

    `source` and `out` are addresses; steps count floats and may be negative. Nothing else is read or written.
    """

    def generate(builder: ir.IRBuilder, *values: ir.Value) -> None:
        source, source_step, rows, columns, out, out_step = values
        full = index(SIDE)
        with builder.if_else(builder.icmp_signed("==", columns, full)) as (wide, part):
            with wide, builder.if_else(builder.icmp_signed("==", rows, full)) as (whole, few):
                with whole:
                    taken = [builder.load(place, align=FLOAT_BYTES) for place in _lines(builder, source, source_step)]
                    for row, place in zip(_transposed(builder, taken), _lines(builder, out, out_step), strict=True):
                        builder.store(row, place, align=FLOAT_BYTES)
                        further = builder.add(builder.ptrtoint(place, INDEX), index(2 * LINE_BYTES))
                        prefetch(builder, further, to_write=True)
                with few:  # as in the rows of small maps: masks take longer than all the rest
                    lines = _some_lines(builder, source, source_step, rows, full)
                    taken = [builder.load(place, align=FLOAT_BYTES) for place, _ in lines]
                    mask = bits_to_mask(builder, lane_bits(builder, rows), SIDE)
                    for row, place in zip(_transposed(builder, taken), _lines(builder, out, out_step), strict=True):
                        masked_store(builder, row, place, mask, SIDE)
            with part:
                taken = [
                    masked_load(builder, place, mask, SIDE)
                    for place, mask in _some_lines(builder, source, source_step, rows, columns)
                ]
                lines = _some_lines(builder, out, out_step, columns, rows)
                for row, (place, mask) in zip(_transposed(builder, taken), lines, strict=True):
                    masked_store(builder, row, place, mask, SIDE)

    return numbers_only(6, generate)


def _generate_rows(lanes: int) -> Callable[..., None]:
    def generate(builder: ir.IRBuilder, *values: ir.Value) -> None:
        table, begin, out, out_step, read_ahead, write_ahead = values
        further = builder.mul(builder.add(begin, read_ahead), index(FLOAT_BYTES))
        taken = []
        for number in range(lanes):
            row = entry_of(builder, table, index(number))
            taken.append(builder.load(address(builder, row, begin, vector(SIDE)), align=FLOAT_BYTES))
            prefetch(builder, builder.add(row, further))
        columns = _transposed(builder, taken + [ir.Constant(vector(SIDE), ir.Undefined)] * (SIDE - lanes))
        beyond = builder.mul(write_ahead, index(FLOAT_BYTES))
        for column, place in zip(columns, _lines(builder, out, out_step), strict=True):
            some = column if lanes == SIDE else shuffle(builder, column, column, list(range(lanes)))
            begins = builder.ptrtoint(place, INDEX)
            builder.store(some, builder.inttoptr(begins, some.type.as_pointer()), align=FLOAT_BYTES)
            prefetch(builder, builder.add(begins, beyond), to_write=True)

    return generate


@intrinsic
def transpose_rows(
    context: Any, table: Any, begin: Any, out: Any, out_step: Any, read_ahead: Any, write_ahead: Any
) -> Any:
    """Set out[j * out_step + i] = row_i[begin + j] for i, j < SIDE, where row_i lies at the address table[i].

    The lines `read_ahead` floats further in each row are prefetched, and those `write_ahead` floats further in `out`.
    """
    return numbers_only(6, _generate_rows(SIDE))


@intrinsic
def transpose_half(
    context: Any, table: Any, begin: Any, out: Any, out_step: Any, read_ahead: Any, write_ahead: Any
) -> Any:
    """Do what `transpose_rows` does for i < HALF."""
    return numbers_only(6, _generate_rows(HALF))
