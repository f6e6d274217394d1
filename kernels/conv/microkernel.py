"""The loop behind every convolution: a contraction through offset tables, in blocks that fit the
caches.

    c[pixel q][lane l] += sum over k of a[a_pixel[q] + a_k[k]] * b[k][l]

Forward, error and gradient of a convolution (`convolution.py`) differ only in what q, l and k are.
Each value of c adds its products in the order of k, each by one fused multiply-add, starting from
what c holds, or from +0; so any partition of q, of l, or of k into consecutive parts gives the same
bits.

Lanes are output channels (FP, PG) or input channels (EB), side by side. b is read in panels: all k
of one block of lanes, side by side. Weights are kept in panels, packed once for each update; in PG,
where b holds the output errors, panels are copied when they are needed. a is read number by number,
from maps framed in zeros. A tile (`llvm/tile.py`) is some pixels q by some vectors of lanes l.

Arguments are addresses, and counts of floats; nothing is checked here.
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
    add_products,
    address,
    call_by_size,
    copy_rows,
    emit_sums,
    entry_of,
    fence,
    index,
    of_blocks,
    prefetch,
    read_index,
    tile_function,
    vector,
)

Places = tuple[ir.Value, ...]

WIDTH, MOST_VECTORS = FORM.width, FORM.vectors
_PIXELS = np.array(FORM.pixels)
_STEPS = 128  # of k at a time, in FP and EB: their panel stays near for all pixels of a block
_FEW = 24  # pixels that use a panel too seldom for that:
_FEW_STEPS = 576  # their sums stay in registers for longer
_BLOCK = 384  # pixels at a time: their sums stay in the second-level cache for all steps
_ROW_STEPS = 384  # of k at a time, in PG: the panel is read in order, and the sums, the gradients, are slow to reach


@compiled
def even_share(total: Any, most: Any) -> Any:
    """Return the size of the next part if `total` is cut into as few and equal parts of at most
    `most` as possible.
    """
    parts = (total + most - 1) // most
    return (total + parts - 1) // parts


@compiled
def vectors_of(lanes: Any) -> Any:
    """Return the number of vectors of the next block of lanes, where `lanes` lanes are left."""
    return even_share((lanes + WIDTH - 1) // WIDTH, MOST_VECTORS)


@compiled
def padded_lanes(lanes: Any) -> Any:
    """Return `lanes` rounded up to whole vectors."""
    return (lanes + WIDTH - 1) // WIDTH * WIDTH


@compiled
def lanes_together(lanes: Any) -> Any:
    """Return how many lanes, from the first on, lie side by side in runs of one length; 1 where
    some are spare.
    """
    if lanes % WIDTH:
        return 1
    together = 0
    while lanes > 0:
        row = vectors_of(lanes) * WIDTH
        lanes -= row
        # Euclid: the longest run that divides the blocks so far.
        while row:
            together, row = row, together % row
    return together


class Tiles(NamedTuple):
    """What tiles read and write: c[c_pixel[q] * c_step + l] += sum over k of a[a_pixel[q] +
    a_k[k]] * b[k][l].

    `lanes` of c, `steps` of k; where `fresh` is not 0, sums start from +0. Each step also
    prefetches a cache line from `b_next` to `b_end`, and the one `a_ahead` bytes after a number of
    a.
    """

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
    a_ahead: int
    b_next: int
    b_end: int


@intrinsic
def _run_tiles(context: Any, size: Any, tiles: Any, before: Any, at: Any) -> Any:
    """Run `tiles` tiles, one after another, of a size (vectors, pixels), after `before` (tiles,
    pixels) were run.

    There is at least one tile, one step, and a lane in the last vector.
    """

    def generate(
        builder: ir.IRBuilder, size: Places, tiles: ir.Value, before: Places, at: Places
    ) -> None:
        names = "tiles", "tiles_before", "pixels_before", *Tiles._fields
        values = [tiles, *before, *at]

        def call(vectors: int, pixels: int) -> None:
            def write(builder: ir.IRBuilder, at: Any) -> None:
                _write(builder, vectors, pixels, at)

            builder.call(
                tile_function(builder.module, f"tile_{vectors}x{pixels}", names, write), values
            )

        sizes = [(v, p) for v, most in enumerate(FORM.pixels, 1) for p in range(1, most + 1)]
        call_by_size(builder, sizes, size, call)

    return of_blocks(generate, size, tiles, before, at)


def _write(builder: ir.IRBuilder, vectors: int, pixels: int, at: Any) -> None:
    """Emit the loop over tiles, around that over the products of each."""
    width, kind, row_bytes = FORM.width, vector(FORM.width), FLOAT_BYTES * vectors * FORM.width
    a_k_end = builder.add(at.a_k, builder.mul(at.steps, index(INDEX_BYTES)))
    lines_of_tile = builder.mul(at.steps, index(LINE_BYTES))
    b_begin = builder.add(at.b_next, builder.mul(at.tiles_before, lines_of_tile))
    before, loop, done = (
        builder.block,
        builder.append_basic_block("tile"),
        builder.append_basic_block("done"),
    )
    builder.branch(loop)

    builder.position_at_end(loop)
    tile, b_lines = builder.phi(INDEX), builder.phi(INDEX)
    first = builder.add(at.pixels_before, builder.mul(tile, index(pixels)))
    numbers = [builder.add(first, index(p)) for p in range(pixels)]
    rows = [builder.mul(entry_of(builder, at.c_pixel, q), at.c_step) for q in numbers]
    places = [
        address(builder, at.c, builder.add(row, index(v * width)), kind)
        for row in rows
        for v in range(vectors)
    ]
    sources = [address(builder, at.a, entry_of(builder, at.a_pixel, q), FLOAT) for q in numbers]
    further = builder.add(builder.ptrtoint(sources[0], INDEX), at.a_ahead)
    # Beyond the end, lines are fetched that are in the cache already: that costs nothing.
    line_start = builder.select(builder.icmp_unsigned("<", b_lines, at.b_end), b_lines, at.b)

    def step(
        variables: list[ir.Value], sums: list[ir.Value]
    ) -> tuple[list[ir.Value], list[ir.Value], ir.Value]:
        place_k, row, line = variables
        offset = builder.load(builder.inttoptr(place_k, INDEX.as_pointer()), align=INDEX_BYTES)
        weights = [
            builder.load(address(builder, row, index(v * width), kind), align=FLOAT_BYTES)
            for v in range(vectors)
        ]
        results = add_products(builder, sources, offset, weights, sums)
        # A row of one line needs no address more, which counts in a form with few instructions a
        # step.
        prefetch(
            builder,
            builder.add(row, builder.sub(line_start, at.b)) if row_bytes == LINE_BYTES else line,
        )
        prefetch(builder, builder.add(further, builder.mul(offset, index(FLOAT_BYTES))))
        fence(builder)  # that the next step's loads do not take the registers of the sums
        next_k = builder.add(place_k, index(INDEX_BYTES))
        following = [
            next_k,
            builder.add(row, index(row_bytes)),
            builder.add(line, index(LINE_BYTES)),
        ]
        return following, results, builder.icmp_unsigned("<", next_k, a_k_end)

    emit_sums(builder, vectors, places, at.lanes, at.fresh, [at.a_k, at.b, line_start], step)
    next_tile, end = builder.add(tile, index(1)), builder.block
    for phi, begin, value in (
        (tile, index(0), next_tile),
        (b_lines, b_begin, builder.add(b_lines, lines_of_tile)),
    ):
        phi.add_incoming(begin, before)
        phi.add_incoming(value, end)
    builder.cbranch(builder.icmp_signed("<", next_tile, at.tiles), loop, done)
    builder.position_at_end(done)


@compiled
def _run(vectors: Any, pixels: Any, at: Any) -> None:
    """Run the pixels in as few tiles as possible, first the larger ones, then those of a pixel
    less.
    """
    most = _PIXELS[vectors - 1]
    tiles = (pixels + most - 1) // most
    size = pixels // tiles
    larger = pixels - size * tiles
    if larger:
        _run_tiles((vectors, size + 1), larger, (0, 0), at)
    _run_tiles((vectors, size), tiles - larger, (larger, larger * (size + 1)), at)


@compiled
def contract(contraction: Any) -> None:
    """Run a `Contraction` of FP or EB, with b packed in panels of padded lanes."""
    first = 0
    while first < contraction.pixels:
        count = even_share(contraction.pixels - first, _BLOCK)
        c_q, a_q = (
            contraction.c_pixel + INDEX_BYTES * first,
            contraction.a_pixel + INDEX_BYTES * first,
        )
        first += count
        further = (
            FLOAT_BYTES * (read_index(contraction.a_pixel, first) - read_index(a_q, 0))
            if first < contraction.pixels
            else 0
        )
        panel, lane = contraction.b, 0
        while lane < contraction.lanes:
            vectors = vectors_of(contraction.lanes - lane)
            row = vectors * WIDTH
            width = min(row, contraction.lanes - lane)
            k = 0
            while k < contraction.depth:
                steps = even_share(contraction.depth - k, _FEW_STEPS if count <= _FEW else _STEPS)
                part = panel + FLOAT_BYTES * k * row
                after = part + FLOAT_BYTES * steps * row
                tiles = Tiles(
                    c=contraction.c + FLOAT_BYTES * lane,
                    c_pixel=c_q,
                    c_step=contraction.c_step,
                    a=contraction.a,
                    a_pixel=a_q,
                    a_k=contraction.a_k + INDEX_BYTES * k,
                    b=part,
                    steps=steps,
                    lanes=width,
                    fresh=1 if contraction.fresh and k == 0 else 0,
                    a_ahead=further,
                    b_next=after,
                    b_end=(
                        after
                        if count <= _PIXELS[vectors - 1]
                        else after + FLOAT_BYTES * steps * row
                    ),
                )
                _run(vectors, count, tiles)
                k += steps
            further = 0  # once, with the first block of lanes
            panel += FLOAT_BYTES * contraction.depth * row
            lane += row


@compiled
def contract_rows(contraction: Any) -> None:
    """Run a `Contraction` of PG, to c packed in panels of padded lanes, at rows c_pixel, with b[k *
    b_step + l].
    """
    space = np.empty(
        (min(_ROW_STEPS, contraction.depth) * MOST_VECTORS * WIDTH + LINE_BYTES // FLOAT_BYTES),
        np.float32,
    )
    panel = (space.ctypes.data + LINE_BYTES - 1) // LINE_BYTES * LINE_BYTES
    target, lane = contraction.c, 0
    while lane < contraction.lanes:
        vectors = vectors_of(contraction.lanes - lane)
        row = vectors * WIDTH
        width = min(row, contraction.lanes - lane)
        for k in range(0, contraction.depth, _ROW_STEPS):
            steps = min(_ROW_STEPS, contraction.depth - k)
            a_ks, a_further, b_further = contraction.a_k + INDEX_BYTES * k, 0, 0
            if k + steps < contraction.depth:
                b_further = FLOAT_BYTES * steps * contraction.b_step
                if lane == 0:
                    a_further = FLOAT_BYTES * (read_index(a_ks, steps) - read_index(a_ks, 0))
            source = contraction.b + FLOAT_BYTES * (k * contraction.b_step + lane)
            copy_rows(vectors, panel, source, contraction.b_step, steps, width, b_further)
            tiles = Tiles(
                c=target,
                c_pixel=contraction.c_pixel,
                c_step=row,
                a=contraction.a,
                a_pixel=contraction.a_pixel,
                a_k=a_ks,
                b=panel,
                steps=steps,
                lanes=row,
                fresh=1 if contraction.fresh and k == 0 else 0,
                a_ahead=a_further,
                b_next=panel,
                b_end=panel,
            )
            _run(vectors, contraction.pixels, tiles)
        target += FLOAT_BYTES * contraction.pixels * row
        lane += row
    space[0] = 0  # keeps the panel's memory until here
