"""The contraction of `microkernel.py` whose products are added in blocks: exactly within a block,
and then once, in fp32, to what c holds.

    c[pixel q][lane l] = fp32(c[q][l] + sum over k in the block of a[a_pixel[q] + a_k[k]] * b[k][l])

for one block after the other. `lengths` has the number of k of each. The sum of a block is exact in
any order where its bits, from the last one of a product to the first one of a sum, are no more than
those of the type that holds it:

- narrow: at most 24 bits are in fp32, as long as nothing is too small or too large for it. `extent`
  says how small and large the operands are.
- wide: at most 53 bits are in fp64, whatever fp32 numbers the operands are. The sum of c and of a
  block may need more: it is rounded to fp64 towards the odd neighbour, and from there to fp32,
  which is one rounding of the exact sum (Boldo and Melquiond, 2008).

Where both hold, both give the same bits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.extending import intrinsic

from ..form import FORM
from ..jit import FLOAT_BYTES, compiled
from ..llvm import (
    FLOAT,
    INDEX,
    INDEX_BYTES,
    LINE_BYTES,
    address,
    broadcast,
    call_by_size,
    copy_rows,
    emit_fma,
    entry_of,
    first_lanes,
    index,
    masked_load,
    masked_store,
    of_blocks,
    read_index,
    tile_function,
    vector,
)
from .microkernel import MOST_VECTORS, WIDTH, Places, even_share, vectors_of

_WIDE_PIXELS = tuple(max(1, pixels // 2) for pixels in FORM.pixels)
"""Pixels of a tile by its vectors, where sums take two registers."""
_PIXELS = np.array([FORM.pixels, _WIDE_PIXELS])
_STEPS = 128  # of k at a time, in whole blocks: their panel stays near for all pixels
_ROW_STEPS = 384  # of k at a time, in PG, where b is copied to a panel
_BLOCK = 384  # pixels at a time: their sums stay in the second-level cache
_LANES, _DOUBLES = vector(WIDTH), ir.VectorType(ir.DoubleType(), WIDTH)
_BITS = ir.VectorType(INDEX, WIDTH)


class Tile(NamedTuple):
    """What a tile reads and writes, of some blocks; see `BlockContraction`. `lanes` of c are
    written.
    """

    c: int
    c_pixel: int
    c_step: int
    a: int
    a_pixel: int
    a_k: int
    b: int
    lengths: int
    blocks: int
    lanes: int


@intrinsic
def _run_tile(context: Any, wide: Any, size: Any, at: Any) -> Any:
    """Run a tile of (vectors, pixels); there is a block, a step in each, and a lane in the last
    vector.
    """

    def generate(builder: ir.IRBuilder, wide: ir.Value, size: Places, at: Places) -> None:
        with builder.if_else(builder.icmp_signed("!=", wide, index(0))) as (doubles, singles):
            with doubles:
                _call(builder, _WIDE_PIXELS, size, at, wide=True)
            with singles:
                _call(builder, FORM.pixels, size, at, wide=False)

    return of_blocks(generate, wide, size, at)


def _call(
    builder: ir.IRBuilder, most: tuple[int, ...], size: Places, at: Places, *, wide: bool
) -> None:
    def call(vectors: int, pixels: int) -> None:
        def write(builder: ir.IRBuilder, at: Any) -> None:
            _write(builder, vectors, pixels, at, wide=wide)

        name = f"{'wide' if wide else 'narrow'}_{vectors}x{pixels}"
        builder.call(tile_function(builder.module, name, Tile._fields, write), [*at])

    sizes = [(v, p) for v, largest in enumerate(most, 1) for p in range(1, largest + 1)]
    call_by_size(builder, sizes, (size[0], size[1]), call)


def _write(builder: ir.IRBuilder, vectors: int, pixels: int, at: Any, *, wide: bool) -> None:
    """Emit the loop over blocks, around that over the products of each."""
    kind = _DOUBLES if wide else _LANES
    rows = [builder.mul(entry_of(builder, at.c_pixel, index(p)), at.c_step) for p in range(pixels)]
    starts = [index(v * WIDTH) for v in range(vectors)]
    places = [
        address(builder, at.c, builder.add(row, start), _LANES) for row in rows for start in starts
    ]
    sources = [
        address(builder, at.a, entry_of(builder, at.a_pixel, index(p)), FLOAT)
        for p in range(pixels)
    ]
    before = builder.block
    block, step, added, whole, part, stored, done = (
        builder.append_basic_block(name)
        for name in ("block", "step", "added", "whole", "part", "stored", "done")
    )
    some = builder.icmp_signed("<", at.lanes, index(vectors * WIDTH))
    mask = first_lanes(builder, builder.sub(at.lanes, index((vectors - 1) * WIDTH)), WIDTH)
    builder.branch(block)

    builder.position_at_end(block)
    number, first_k, first_row = (builder.phi(INDEX) for _ in range(3))
    length = entry_of(builder, at.lengths, number)
    k_end = builder.add(first_k, builder.mul(length, index(INDEX_BYTES)))
    builder.branch(step)

    builder.position_at_end(step)
    place_k, row = builder.phi(INDEX), builder.phi(INDEX)
    sums = [builder.phi(kind) for _ in places]
    offset = entry_of(builder, place_k, index(0))
    weights = [
        _as(builder, kind, builder.load(address(builder, row, start, _LANES), align=FLOAT_BYTES))
        for start in starts
    ]
    results = []
    for pixel, source in enumerate(sources):
        value = builder.load(builder.gep(source, [offset]), align=FLOAT_BYTES)
        if wide:
            value = builder.fpext(value, ir.DoubleType())
        factor = broadcast(builder, value, WIDTH)
        own = sums[pixel * vectors : (pixel + 1) * vectors]
        results += [
            _product(builder, factor, weight, total)
            for weight, total in zip(weights, own, strict=True)
        ]
    following = builder.add(place_k, index(INDEX_BYTES))
    next_row = builder.add(row, index(FLOAT_BYTES * vectors * WIDTH))
    zeros = ir.Constant(kind, [0.0] * WIDTH)
    for phi, begin, value in (
        (place_k, first_k, following),
        (row, first_row, next_row),
        *((total, zeros, result) for total, result in zip(sums, results, strict=True)),
    ):
        phi.add_incoming(begin, block)
        phi.add_incoming(value, step)
    builder.cbranch(builder.icmp_unsigned("<", following, k_end), step, added)

    builder.position_at_end(added)
    builder.cbranch(some, part, whole)
    for target, masked in ((whole, False), (part, True)):
        builder.position_at_end(target)
        for place, (pointer, result) in enumerate(zip(places, results, strict=True)):
            if masked and place % vectors == vectors - 1:
                held = masked_load(builder, pointer, mask, WIDTH)
                masked_store(builder, _added(builder, held, result), pointer, mask, WIDTH)
            else:
                held = builder.load(pointer, align=FLOAT_BYTES)
                builder.store(_added(builder, held, result), pointer, align=FLOAT_BYTES)
        builder.branch(stored)

    builder.position_at_end(stored)
    next_number = builder.add(number, index(1))
    for phi, begin, value in (
        (number, index(0), next_number),
        (first_k, at.a_k, k_end),
        (first_row, at.b, next_row),
    ):
        phi.add_incoming(begin, before)
        phi.add_incoming(value, stored)
    builder.cbranch(builder.icmp_signed("<", next_number, at.blocks), block, done)
    builder.position_at_end(done)


def _as(builder: ir.IRBuilder, kind: ir.VectorType, value: ir.Value) -> ir.Value:
    return builder.fpext(value, kind) if kind == _DOUBLES else value


def _product(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, total: ir.Value) -> ir.Value:
    """Add a product to a sum; in fp64 product and sum are exact, fused or not."""
    if a.type == _LANES:
        return emit_fma(builder, a, b, total)
    return builder.fadd(total, builder.fmul(a, b))


def _added(builder: ir.IRBuilder, held: ir.Value, total: ir.Value) -> ir.Value:
    """Return what c holds and the sum of a block, added and rounded to fp32 once."""
    if total.type == _LANES:
        return builder.fadd(held, total)
    # The sum in fp64, and exactly what its rounding cut off (Knuth's TwoSum).
    before = builder.fpext(held, _DOUBLES)
    near = builder.fadd(before, total)
    of_total = builder.fsub(near, before)
    lost = builder.fadd(
        builder.fsub(before, builder.fsub(near, of_total)), builder.fsub(total, of_total)
    )
    nothing = ir.Constant(_DOUBLES, [0.0] * WIDTH)
    bits, one = builder.bitcast(near, _BITS), ir.Constant(_BITS, [1] * WIDTH)
    # Of an even neighbour, the odd one on the side of the exact sum: one more or one less in size.
    grows = builder.xor(
        builder.fcmp_ordered("<", lost, nothing), builder.fcmp_ordered("<", near, nothing)
    )
    odd = builder.select(grows, builder.sub(bits, one), builder.add(bits, one))
    is_even = builder.icmp_unsigned("==", builder.and_(bits, one), ir.Constant(_BITS, [0] * WIDTH))
    moves = builder.and_(is_even, builder.fcmp_ordered("!=", lost, nothing))
    rounded = builder.bitcast(builder.select(moves, odd, bits), _DOUBLES)
    return builder.fptrunc(rounded, _LANES)


@compiled
def _run(wide: Any, vectors: Any, pixels: Any, tile: Any) -> None:
    """Run the pixels of a block of lanes in as few tiles as possible."""
    done, most = 0, _PIXELS[wide, vectors - 1]
    while done < pixels:
        size = even_share(pixels - done, most)
        at = Tile(
            tile.c,
            tile.c_pixel + INDEX_BYTES * done,
            tile.c_step,
            tile.a,
            tile.a_pixel + INDEX_BYTES * done,
            tile.a_k,
            tile.b,
            tile.lengths,
            tile.blocks,
            tile.lanes,
        )
        _run_tile(wide, (vectors, size), at)
        done += size


@compiled
def _whole_blocks(lengths: Any, first: Any, blocks: Any, most: Any) -> Any:
    """Return how many blocks from the first on have at most `most` steps together, at least one;
    and their steps.
    """
    steps = read_index(lengths, first)
    count = 1
    while first + count < blocks and steps + read_index(lengths, first + count) <= most:
        steps += read_index(lengths, first + count)
        count += 1
    return count, steps


@compiled
def contract(wide: Any, contraction: Any) -> None:
    """Run a `BlockContraction` of FP or EB; `wide` is 1 for sums in fp64."""
    at, pixel = contraction, 0
    while pixel < at.pixels:
        some = even_share(at.pixels - pixel, _BLOCK)
        panel, lane = at.b, 0
        while lane < at.lanes:
            vectors = vectors_of(at.lanes - lane)
            row = vectors * WIDTH
            k, block = 0, 0
            while block < at.blocks:
                count, steps = _whole_blocks(at.lengths, block, at.blocks, _STEPS)
                tile = Tile(
                    at.c + FLOAT_BYTES * lane,
                    at.c_pixel + INDEX_BYTES * pixel,
                    at.c_step,
                    at.a,
                    at.a_pixel + INDEX_BYTES * pixel,
                    at.a_k + INDEX_BYTES * k,
                    panel + FLOAT_BYTES * k * row,
                    at.lengths + INDEX_BYTES * block,
                    count,
                    min(row, at.lanes - lane),
                )
                _run(wide, vectors, some, tile)
                k += steps
                block += count
            panel += FLOAT_BYTES * at.depth * row
            lane += row
        pixel += some


@compiled
def contract_rows(wide: Any, contraction: Any) -> None:
    """Run a `BlockContraction` of PG."""
    at = contraction
    longest = 1
    for block in range(at.blocks):
        longest = max(longest, read_index(at.lengths, block))
    room = max(longest, min(_ROW_STEPS, at.depth)) * MOST_VECTORS * WIDTH
    space = np.empty((room + LINE_BYTES // FLOAT_BYTES), np.float32)
    panel = (space.ctypes.data + LINE_BYTES - 1) // LINE_BYTES * LINE_BYTES
    target, lane = at.c, 0
    while lane < at.lanes:
        vectors = vectors_of(at.lanes - lane)
        row = vectors * WIDTH
        k, block = 0, 0
        while block < at.blocks:
            count, steps = _whole_blocks(at.lengths, block, at.blocks, _ROW_STEPS)
            source = at.b + FLOAT_BYTES * (k * at.b_step + lane)
            copy_rows(vectors, panel, source, at.b_step, steps, min(row, at.lanes - lane), 0)
            tile = Tile(
                target,
                at.c_pixel,
                row,
                at.a,
                at.a_pixel,
                at.a_k + INDEX_BYTES * k,
                panel,
                at.lengths + INDEX_BYTES * block,
                count,
                row,
            )
            _run(wide, vectors, at.pixels, tile)
            k += steps
            block += count
        target += FLOAT_BYTES * at.c_step * row
        lane += row
    space[0] = 0  # keeps the panel's memory until here


@compiled
def extent(bits: Any, ends: Any) -> None:
    """Write to `ends` the bits of the least number that is not zero, less one, and of the largest;
    signs left out.
    """
    least, largest = np.uint32(0xFFFFFFFF), np.uint32(0)
    for place in range(bits.size):
        size = np.uint32(bits[place] & np.uint32(0x7FFFFFFF))
        least = min(least, np.uint32(size - np.uint32(1)))
        largest = max(largest, size)
    ends[0], ends[1] = least, largest
