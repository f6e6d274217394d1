"""The contraction of `block_kernel.py` where operands are whole numbers of up to 8 bits at one
scale in each block, as those of int8, MXINT8, MXFP6 of E2M3 and MXFP4 are.

    c[pixel q][lane l] = fp32(c[q][l] + scale of a * scale of b * sum over k in the block of a * b)

The sum is of integers, and exact. Scales are powers of two, and so are their products: the
multiply-add of sum, scale and c rounds once. These are the bits of `block_kernel.py`.

Integers lie in words of 32 bits, 4 bytes or 2 halves, as the processor adds their products to sums
of 32 bits (`PRODUCTS`):

    vnni      bytes   vpdpbusd: four products, of bytes of b without sign, 128 more than they are;
                      so sums begin with -128 times the sum of a
    pairs     halves  vpmaddwd: two products
    portable  halves  multiplications and additions of 32-bit integers

b has its blocks one after another: a row of scales, and rows of words, each of all lanes of a
panel. Of a block, a has words that lie `a_step` bytes apart: what its scale adds to the exponent,
where its sum begins, and its integers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.extending import intrinsic

from ..form import FORM, PRODUCTS
from ..jit import FLOAT_BYTES, compiled
from ..llvm import (
    INDEX,
    INDEX_BYTES,
    INT,
    address,
    broadcast,
    call_by_size,
    emit_fma,
    emit_sums,
    entry_of,
    index,
    integers,
    of_blocks,
    read_index,
    tile_function,
    vector,
)
from .microkernel import WIDTH, Places, even_share, vectors_of

TOGETHER = 4 if PRODUCTS == "vnni" else 2
"""Integers of a word."""
HEAD = 2
"""Words of a block of a before its integers."""
OFFSET = 128 if PRODUCTS == "vnni" else 0
"""What bytes of b are more than they say."""
_MOST_PIXELS = tuple(max(1, pixels // 2) for pixels in FORM.pixels)
"""Pixels of a tile by its vectors: a block and what it is added to take a register each."""
_PIXELS = np.array(_MOST_PIXELS)
_PANEL_BYTES = 16384  # of b at a time: they stay in the first-level cache for all pixels of a block
_BLOCK = 384  # pixels at a time: their sums stay in the second-level cache
_LANES, _INTS = vector(WIDTH), ir.VectorType(INT, WIDTH)


class Tile(NamedTuple):
    """What a tile reads and writes, of some blocks; see `IntegerContraction`. `lanes` of c are
    written.
    """

    c: int
    c_pixel: int
    c_step: int
    a: int
    a_pixel: int
    a_block: int
    a_step: int
    b: int
    words: int
    blocks: int
    lanes: int


@intrinsic
def _run_tile(context: Any, size: Any, at: Any) -> Any:
    """Run a tile of (vectors, pixels); there is a block, a word in each, and a lane in the last
    vector.
    """

    def generate(builder: ir.IRBuilder, size: Places, at: Places) -> None:
        def call(vectors: int, pixels: int) -> None:
            def write(builder: ir.IRBuilder, at: Any) -> None:
                _write(builder, vectors, pixels, at)

            name = f"integers_{vectors}x{pixels}"
            builder.call(tile_function(builder.module, name, Tile._fields, write), [*at])

        sizes = [(v, p) for v, most in enumerate(_MOST_PIXELS, 1) for p in range(1, most + 1)]
        call_by_size(builder, sizes, (size[0], size[1]), call)

    return of_blocks(generate, size, at)


def _write(builder: ir.IRBuilder, vectors: int, pixels: int, at: Any) -> None:
    """Emit the loop over blocks, around that over the words of each."""
    rows = [builder.mul(entry_of(builder, at.c_pixel, index(p)), at.c_step) for p in range(pixels)]
    starts = [index(v * WIDTH) for v in range(vectors)]
    places = [
        address(builder, at.c, builder.add(row, start), _LANES) for row in rows for start in starts
    ]
    sources = [builder.add(at.a, entry_of(builder, at.a_pixel, index(p))) for p in range(pixels)]
    row_bytes = index(FLOAT_BYTES * vectors * WIDTH)

    def add_block(
        variables: list[ir.Value], totals: list[ir.Value]
    ) -> tuple[list[ir.Value], list[ir.Value], ir.Value]:
        number, first_row = variables
        head = entry_of(builder, at.a_block, number)
        begin = builder.add(head, at.a_step)
        begin_row = builder.add(first_row, row_bytes)
        words = builder.mul(entry_of(builder, at.words, number), row_bytes)
        end_row = builder.add(begin_row, words)
        begins = [_word(builder, source, begin) for source in sources for _ in starts]
        begin_word = builder.add(begin, at.a_step)
        before, step, added = builder.block, *map(builder.append_basic_block, ("words", "added"))
        builder.branch(step)

        builder.position_at_end(step)
        place, row = builder.phi(INDEX), builder.phi(INDEX)
        sums = [builder.phi(_INTS) for _ in places]
        others = [
            builder.load(address(builder, row, start, _INTS), align=FLOAT_BYTES) for start in starts
        ]
        results = []
        for pixel, source in enumerate(sources):
            own = _word(builder, source, place)
            held = sums[pixel * vectors : (pixel + 1) * vectors]
            results += [
                _summed(builder, own, other, total)
                for other, total in zip(others, held, strict=True)
            ]
        following, next_row = builder.add(place, at.a_step), builder.add(row, row_bytes)
        for phi, first, value in zip(
            [place, row, *sums],
            [begin_word, begin_row, *begins],
            [following, next_row, *results],
            strict=True,
        ):
            phi.add_incoming(first, before)
            phi.add_incoming(value, step)
        builder.cbranch(builder.icmp_unsigned("<", next_row, end_row), step, added)

        builder.position_at_end(added)
        scales = [
            builder.load(address(builder, first_row, start, _INTS), align=FLOAT_BYTES)
            for start in starts
        ]
        ends = []
        for pixel, source in enumerate(sources):
            exponent = _word(builder, source, head)
            for lane, scale in enumerate(scales):
                place_of = pixel * vectors + lane
                factor = builder.bitcast(builder.add(scale, exponent), _LANES)
                whole = builder.sitofp(results[place_of], _LANES)
                ends.append(emit_fma(builder, whole, factor, totals[place_of]))
        next_number = builder.add(number, index(1))
        more = builder.icmp_signed("<", next_number, at.blocks)
        return [next_number, next_row], ends, more

    emit_sums(builder, vectors, places, at.lanes, index(0), [index(0), at.b], add_block)


def _word(builder: ir.IRBuilder, source: ir.Value, offset: ir.Value) -> ir.Value:
    """Return a word of a in all lanes, as integers."""
    place = builder.add(source, offset)
    value = builder.load(builder.inttoptr(place, INT.as_pointer()), align=FLOAT_BYTES)
    return broadcast(builder, value, WIDTH)


def _summed(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, total: ir.Value) -> ir.Value:
    """Return sums with the products of a word of a and of b in each lane."""
    bits = 32 * WIDTH
    if PRODUCTS == "vnni":
        name = f"llvm.x86.avx512.vpdpbusd.{bits}"
        return builder.call(function_of(builder, name, _INTS, [_INTS] * 3), [total, b, a])
    if PRODUCTS == "pairs":
        name = "llvm.x86.avx512.pmaddw.d.512" if WIDTH == 16 else "llvm.x86.avx2.pmadd.wd"
        halves = ir.VectorType(ir.IntType(16), 2 * WIDTH)
        function = function_of(builder, name, _INTS, [halves] * 2)
        pair = [builder.bitcast(value, halves) for value in (a, b)]
        return builder.add(total, builder.call(function, pair))
    half = integers(16)
    for shifted in (False, True):
        one, other = (
            builder.ashr(value if shifted else builder.shl(value, half), half) for value in (a, b)
        )
        total = builder.add(total, builder.mul(one, other))
    return total


def function_of(
    builder: ir.IRBuilder, name: str, result: ir.Type, arguments: list[ir.Type]
) -> ir.Function:
    known = builder.module.globals.get(name)
    return known or ir.Function(builder.module, ir.FunctionType(result, arguments), name)


@compiled
def _run(vectors: Any, pixels: Any, tile: Any) -> None:
    """Run the pixels of a block of lanes in as few tiles as possible."""
    done, most = 0, _PIXELS[vectors - 1]
    while done < pixels:
        size = even_share(pixels - done, most)
        at = Tile(
            tile.c,
            tile.c_pixel + INDEX_BYTES * done,
            tile.c_step,
            tile.a,
            tile.a_pixel + INDEX_BYTES * done,
            tile.a_block,
            tile.a_step,
            tile.b,
            tile.words,
            tile.blocks,
            tile.lanes,
        )
        _run_tile((vectors, size), at)
        done += size


@compiled
def contract(contraction: Any) -> None:
    """Run an `IntegerContraction`."""
    at, pixel = contraction, 0
    while pixel < at.pixels:
        some = even_share(at.pixels - pixel, _BLOCK)
        panel, lane, target = at.b, 0, at.c
        while lane < at.lanes:
            vectors = vectors_of(at.lanes - lane)
            row = vectors * WIDTH
            lanes, step = min(row, at.lanes - lane), at.c_step
            if at.c_rows:
                lanes, step = row, row
            block = 0
            while block < at.blocks:
                first, rows, count = block, 0, 0
                while block < at.blocks:
                    more = 1 + read_index(at.words, block)
                    if count and FLOAT_BYTES * row * (rows + more) > _PANEL_BYTES:
                        break
                    rows, count, block = rows + more, count + 1, block + 1
                tile = Tile(
                    target,
                    at.c_pixel + INDEX_BYTES * pixel,
                    step,
                    at.a,
                    at.a_pixel + INDEX_BYTES * pixel,
                    at.a_block + INDEX_BYTES * first,
                    at.a_step,
                    panel,
                    at.words + INDEX_BYTES * first,
                    count,
                    lanes,
                )
                _run(vectors, some, tile)
                panel += FLOAT_BYTES * row * rows
            target += FLOAT_BYTES * (at.c_rows if at.c_rows else 1) * row
            lane += row
        pixel += some
