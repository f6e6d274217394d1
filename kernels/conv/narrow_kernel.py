"""The contraction of `microkernel.py` with sums that are not in fp32: rounded after each product,
or integers.

`Sums` says which. bf16 and fp16 round each fused multiply-add twice, to fp32 and then to their own
grid, both times to even. Integers are int32 in the memory of float32: each product, which fp32
holds if its factors have 24 bits together, is a whole number, which is converted and added; sums
wrap around beyond 2^31. As in the micro-kernel, each sum takes its products in the order of k, so
any partition gives the same bits.

A tile runs all k at once, without blocks for the caches: rounding takes longer than what these
would save.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.extending import intrinsic

from ..form import FORM
from ..jit import FLOAT_BYTES, compiled
from ..llvm import (
    FLOAT,
    INDEX_BYTES,
    INT,
    LINE_BYTES,
    address,
    broadcast,
    call_by_size,
    copy_rows,
    emit_fma,
    emit_sums,
    entry_of,
    index,
    integers,
    of_blocks,
    tile_function,
    vector,
)
from .geometry import Sums
from .microkernel import MOST_VECTORS, WIDTH, Places, vectors_of

_MOST_PIXELS = 4  # of a tile; others have half of them, or one
_ROW_STEPS = 384  # of k at a time, in PG, where b is copied to a panel
_LANES, _INTS = vector(WIDTH), ir.VectorType(INT, WIDTH)

Product = Callable[[ir.IRBuilder, ir.Value, ir.Value, ir.Value], ir.Value]
"""Emits a sum after a product, from both factors and the sum before: three vectors of floats."""


def _bf16(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, total: ir.Value) -> ir.Value:
    bits = builder.bitcast(emit_fma(builder, a, b, total), _INTS)
    half = builder.add(
        integers(0x7FFF), builder.and_(builder.lshr(bits, integers(16)), integers(1))
    )
    return builder.bitcast(builder.and_(builder.add(bits, half), integers(-0x10000)), _LANES)


def _fp16(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, total: ir.Value) -> ir.Value:
    """Add and subtract a number whose last bit is worth what fp16's is, at least 2^-24; from 65520
    on, give infinity.

    The number has the sum's exponent, at least -14, and 13 more.
    """
    value = emit_fma(builder, a, b, total)
    bits = builder.bitcast(value, _INTS)
    sign, magnitude = (
        builder.and_(bits, integers(-0x80000000)),
        builder.and_(bits, integers(0x7FFFFFFF)),
    )
    exponent, least = builder.and_(bits, integers(0x7F800000)), integers(127 - 14 << 23)
    above = builder.select(builder.icmp_unsigned(">", exponent, least), exponent, least)
    grid = builder.bitcast(builder.add(above, integers(13 << 23)), _LANES)
    positive = builder.bitcast(magnitude, _LANES)
    rounded = builder.bitcast(builder.fsub(builder.fadd(positive, grid), grid), _INTS)
    is_finite = builder.icmp_unsigned("<", magnitude, integers(0x477FF000))
    is_nan = builder.icmp_unsigned(">", magnitude, integers(0x7F800000))
    beyond = builder.select(is_nan, integers(0x7FC00000), integers(0x7F800000))
    return builder.bitcast(builder.or_(builder.select(is_finite, rounded, beyond), sign), _LANES)


def _int32(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, total: ir.Value) -> ir.Value:
    whole = builder.fptosi(builder.fmul(a, b), _INTS)
    return builder.bitcast(builder.add(builder.bitcast(total, _INTS), whole), _LANES)


_PRODUCTS: dict[Sums, Product] = {Sums.BF16: _bf16, Sums.FP16: _fp16, Sums.INT32: _int32}


class Tile(NamedTuple):
    """What a tile reads and writes; see `microkernel.Tiles`. `lanes` of c are written."""

    c: int
    c_pixel: int
    c_step: int
    a: int
    a_pixel: int
    a_k: int
    b: int
    steps: int
    lanes: int
    fresh: int


@intrinsic
def _run_tile(context: Any, sums: Any, size: Any, at: Any) -> Any:
    """Run a tile of (vectors, pixels); there is at least one step, and a lane in the last
    vector.
    """

    def generate(builder: ir.IRBuilder, sums: ir.Value, size: Places, at: Places) -> None:
        done = builder.append_basic_block("added")
        switch = builder.switch(sums, done)
        for kind, product in _PRODUCTS.items():
            case = builder.append_basic_block(f"in_{kind.name}")
            switch.add_case(index(kind.value), case)
            builder.position_at_end(case)
            _call(builder, kind.name, product, size, at)
            builder.branch(done)
        builder.position_at_end(done)

    return of_blocks(generate, sums, size, at)


def _call(builder: ir.IRBuilder, name: str, product: Product, size: Places, at: Places) -> None:
    def call(vectors: int, pixels: int) -> None:
        def write(builder: ir.IRBuilder, at: Any) -> None:
            _write(builder, vectors, pixels, product, at)

        function = tile_function(builder.module, f"{name}_{vectors}x{pixels}", Tile._fields, write)
        builder.call(function, [*at])

    pixels = [1 << power for power in range(_MOST_PIXELS.bit_length())]
    sizes = [(vectors, count) for vectors in range(1, FORM.vectors + 1) for count in pixels]
    call_by_size(builder, sizes, (size[0], size[1]), call)


def _write(builder: ir.IRBuilder, vectors: int, pixels: int, product: Product, at: Any) -> None:
    a_k_end = builder.add(at.a_k, builder.mul(at.steps, index(INDEX_BYTES)))
    rows = [builder.mul(entry_of(builder, at.c_pixel, index(p)), at.c_step) for p in range(pixels)]
    starts = [index(v * WIDTH) for v in range(vectors)]
    places = [
        address(builder, at.c, builder.add(row, start), _LANES) for row in rows for start in starts
    ]
    sources = [
        address(builder, at.a, entry_of(builder, at.a_pixel, index(p)), FLOAT)
        for p in range(pixels)
    ]

    def step(
        variables: list[ir.Value], sums: list[ir.Value]
    ) -> tuple[list[ir.Value], list[ir.Value], ir.Value]:
        place_k, row = variables
        offset = entry_of(builder, place_k, index(0))
        weights = [
            builder.load(address(builder, row, start, _LANES), align=FLOAT_BYTES)
            for start in starts
        ]
        results = []
        for pixel, source in enumerate(sources):
            number = broadcast(
                builder, builder.load(builder.gep(source, [offset]), align=FLOAT_BYTES), WIDTH
            )
            before = sums[pixel * vectors : (pixel + 1) * vectors]
            results += [
                product(builder, number, *pair) for pair in zip(weights, before, strict=True)
            ]
        following = builder.add(place_k, index(INDEX_BYTES))
        next_row = builder.add(row, index(FLOAT_BYTES * vectors * WIDTH))
        return [following, next_row], results, builder.icmp_unsigned("<", following, a_k_end)

    emit_sums(builder, vectors, places, at.lanes, at.fresh, [at.a_k, at.b], step)


@compiled
def _run(sums: Any, vectors: Any, pixels: Any, tile: Any) -> None:
    """Run the pixels of a block of lanes, in tiles."""
    done, size = 0, _MOST_PIXELS
    while done < pixels:
        while size > pixels - done:
            size //= 2
        c_pixel, a_pixel = tile.c_pixel + INDEX_BYTES * done, tile.a_pixel + INDEX_BYTES * done
        at = Tile(
            tile.c,
            c_pixel,
            tile.c_step,
            tile.a,
            a_pixel,
            tile.a_k,
            tile.b,
            tile.steps,
            tile.lanes,
            tile.fresh,
        )
        _run_tile(sums, (vectors, size), at)
        done += size


@compiled
def contract(sums: Any, contraction: Any) -> None:
    """Run a `Contraction` of FP or EB, with b packed in panels of padded lanes; `sums` is the value
    of a `Sums`.
    """
    at, panel, lane = contraction, contraction.b, 0
    while lane < at.lanes:
        vectors = vectors_of(at.lanes - lane)
        row = vectors * WIDTH
        width, target = min(row, at.lanes - lane), at.c + FLOAT_BYTES * lane
        fresh = 1 if at.fresh else 0
        tile = Tile(
            target, at.c_pixel, at.c_step, at.a, at.a_pixel, at.a_k, panel, at.depth, width, fresh
        )
        _run(sums, vectors, at.pixels, tile)
        panel += FLOAT_BYTES * at.depth * row
        lane += row


@compiled
def contract_rows(sums: Any, contraction: Any) -> None:
    """Run a `Contraction` of PG, to c packed in panels of padded lanes, with b[k * b_step + l]."""
    at = contraction
    space = np.empty(
        (min(_ROW_STEPS, at.depth) * MOST_VECTORS * WIDTH + LINE_BYTES // FLOAT_BYTES), np.float32
    )
    panel = (space.ctypes.data + LINE_BYTES - 1) // LINE_BYTES * LINE_BYTES
    target, lane = at.c, 0
    while lane < at.lanes:
        vectors = vectors_of(at.lanes - lane)
        row = vectors * WIDTH
        for k in range(0, at.depth, _ROW_STEPS):
            steps, a_k = min(_ROW_STEPS, at.depth - k), at.a_k + INDEX_BYTES * k
            source = at.b + FLOAT_BYTES * (k * at.b_step + lane)
            copy_rows(vectors, panel, source, at.b_step, steps, min(row, at.lanes - lane), 0)
            fresh = 1 if at.fresh and k == 0 else 0
            tile = Tile(target, at.c_pixel, row, at.a, at.a_pixel, a_k, panel, steps, row, fresh)
            _run(sums, vectors, at.pixels, tile)
        target += FLOAT_BYTES * at.pixels * row
        lane += row
    space[0] = 0  # keeps the panel's memory until here
