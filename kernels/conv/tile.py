"""The register tile: the innermost loop of every convolution, as LLVM IR.

    c[c_pixel[q] * c_step + l] += sum over k of a[a_pixel[q] + a_k[k]] * b[k][l]

A tile is some pixels q by some vectors of lanes l, and all its sums stay in registers while k runs. Each step loads the
vectors of b, a panel, and for each pixel one number of a, copied to all lanes. Only IR guarantees what stays in
registers; a fence after each step, that the next one's loads do not take their place. The form (`form.py`) limits the
pixels and vectors of a tile. There is code for every number of pixels up to the limit, so that the last ones cost no
more than their share.

Arguments are addresses, and counts of floats; nothing is checked here.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.extending import intrinsic

from ..form import FORM
from ..jit import FLOAT_BYTES
from ..llvm import (
    FLOAT,
    INDEX,
    INDEX_BYTES,
    LINE_BYTES,
    address,
    broadcast,
    emit_fma,
    entry_of,
    fence,
    first_lanes,
    index,
    masked_load,
    masked_store,
    numbers_only,
    prefetch,
    vector,
)

_ARGUMENTS = (
    "c",
    "c_pixel",
    "c_step",
    "a",
    "a_pixel",
    "a_k",
    "b",
    "steps",
    "tiles",
    "lanes",
    "fresh",
    "a_ahead",
    "b_next",
    "b_end",
)


def _function(module: ir.Module, vectors: int, pixels: int) -> ir.Function:
    """Return the function that runs `tiles` tiles of `pixels` pixels, one after another."""
    name = f"tile_{vectors}x{pixels}"
    known = module.globals.get(name)
    if known is not None:
        return known
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [INDEX] * len(_ARGUMENTS)), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    _write(function, vectors, pixels)
    return function


def _write(function: ir.Function, vectors: int, pixels: int) -> None:
    c, c_pixel, c_step, a, a_pixel, a_k, b, steps, tiles, lanes, fresh, a_ahead, b_next, b_end = function.args
    width, kind, row_bytes = FORM.width, vector(FORM.width), FLOAT_BYTES * vectors * FORM.width
    names = ("entry", "tile", "load", "load_whole", "load_some", "start", "step", "store", "store_whole", "store_some")
    block = {name: function.append_basic_block(name) for name in (*names, "next", "done")}
    builder = ir.IRBuilder(block["entry"])
    some = builder.icmp_signed("<", lanes, index(vectors * width))
    mask = first_lanes(builder, builder.sub(lanes, index((vectors - 1) * width)), width)
    a_k_end = builder.add(a_k, builder.mul(steps, index(INDEX_BYTES)))
    builder.branch(block["tile"])

    builder.position_at_end(block["tile"])
    tile, b_lines = builder.phi(INDEX), builder.phi(INDEX)
    first = builder.mul(tile, index(pixels))
    numbers = [builder.add(first, index(p)) for p in range(pixels)]
    rows = [builder.mul(entry_of(builder, c_pixel, q), c_step) for q in numbers]
    places = [address(builder, c, builder.add(row, index(v * width)), kind) for row in rows for v in range(vectors)]
    sources = [address(builder, a, entry_of(builder, a_pixel, q), FLOAT) for q in numbers]
    further = builder.add(builder.ptrtoint(sources[0], INDEX), a_ahead)
    # Beyond the end, lines are fetched that are in the cache already: that costs nothing.
    line_start = builder.select(builder.icmp_unsigned("<", b_lines, b_end), b_lines, b)
    builder.cbranch(builder.icmp_signed("!=", fresh, index(0)), block["start"], block["load"])

    builder.position_at_end(block["load"])
    builder.cbranch(some, block["load_some"], block["load_whole"])
    builder.position_at_end(block["load_whole"])
    whole = [builder.load(place, align=FLOAT_BYTES) for place in places]
    builder.branch(block["start"])
    builder.position_at_end(block["load_some"])
    parts = [
        masked_load(builder, place, mask, width)
        if number % vectors == vectors - 1
        else builder.load(place, align=FLOAT_BYTES)
        for number, place in enumerate(places)
    ]
    builder.branch(block["start"])

    builder.position_at_end(block["start"])
    starts = []
    for one, other in zip(whole, parts, strict=True):
        start = builder.phi(kind)
        start.add_incoming(ir.Constant(kind, [0.0] * width), block["tile"])
        start.add_incoming(one, block["load_whole"])
        start.add_incoming(other, block["load_some"])
        starts.append(start)
    builder.branch(block["step"])

    builder.position_at_end(block["step"])
    place_k, row, line = builder.phi(INDEX), builder.phi(INDEX), builder.phi(INDEX)
    sums = [builder.phi(kind) for _ in starts]
    offset = builder.load(builder.inttoptr(place_k, INDEX.as_pointer()), align=INDEX_BYTES)
    weights = [builder.load(address(builder, row, index(v * width), kind), align=FLOAT_BYTES) for v in range(vectors)]
    products = []
    for p, source in enumerate(sources):
        value = broadcast(builder, builder.load(builder.gep(source, [offset]), align=FLOAT_BYTES), width)
        products += [emit_fma(builder, value, weight, sums[p * vectors + v]) for v, weight in enumerate(weights)]
    # A row of one line needs no address more, which counts in a form with few instructions a step.
    prefetch(builder, builder.add(row, builder.sub(line_start, b)) if row_bytes == LINE_BYTES else line)
    prefetch(builder, builder.add(further, builder.mul(offset, index(FLOAT_BYTES))))
    fence(builder)
    next_k = builder.add(place_k, index(INDEX_BYTES))
    next_row = builder.add(row, index(row_bytes))
    for phi, begin, following in zip(
        [place_k, row, line, *sums],
        [a_k, b, line_start, *starts],
        [next_k, next_row, builder.add(line, index(LINE_BYTES)), *products],
        strict=True,
    ):
        phi.add_incoming(begin, block["start"])
        phi.add_incoming(following, block["step"])
    builder.cbranch(builder.icmp_unsigned("<", next_k, a_k_end), block["step"], block["store"])

    builder.position_at_end(block["store"])
    builder.cbranch(some, block["store_some"], block["store_whole"])
    builder.position_at_end(block["store_whole"])
    for place, product in zip(places, products, strict=True):
        builder.store(product, place, align=FLOAT_BYTES)
    builder.branch(block["next"])
    builder.position_at_end(block["store_some"])
    for number, (place, product) in enumerate(zip(places, products, strict=True)):
        if number % vectors == vectors - 1:
            masked_store(builder, product, place, mask, width)
        else:
            builder.store(product, place, align=FLOAT_BYTES)
    builder.branch(block["next"])

    builder.position_at_end(block["next"])
    next_tile = builder.add(tile, index(1))
    tile.add_incoming(index(0), block["entry"])
    tile.add_incoming(next_tile, block["next"])
    b_lines.add_incoming(b_next, block["entry"])
    b_lines.add_incoming(builder.add(b_lines, builder.mul(steps, index(LINE_BYTES))), block["next"])
    builder.cbranch(builder.icmp_signed("<", next_tile, tiles), block["tile"], block["done"])
    builder.position_at_end(block["done"])
    builder.ret_void()


@intrinsic
def run_tiles(
    context: Any,
    vectors: Any,
    pixels: Any,
    c: Any,
    c_pixel: Any,
    c_step: Any,
    a: Any,
    a_pixel: Any,
    a_k: Any,
    b: Any,
    steps: Any,
    tiles: Any,
    lanes: Any,
    fresh: Any,
    a_ahead: Any,
    b_next: Any,
    b_end: Any,
) -> Any:
    """Run tiles of `pixels` pixels by `vectors` vectors, whose first `lanes` lanes belong to c.

    There is at least one tile, one step, and a lane in the last vector. Where `fresh` is not 0, sums start from +0.
    Each step also prefetches a cache line from `b_next` to `b_end`, and the one `a_ahead` bytes after a number of a.
    """

    def generate(builder: ir.IRBuilder, vectors: ir.Value, pixels: ir.Value, *values: ir.Value) -> None:
        most = max(FORM.pixels) + 1
        done = builder.append_basic_block("ran")
        switch = builder.switch(builder.add(builder.mul(vectors, index(most)), pixels), done)
        for v, most_pixels in enumerate(FORM.pixels, 1):
            for p in range(1, most_pixels + 1):
                case = builder.append_basic_block(f"case_{v}x{p}")
                switch.add_case(index(v * most + p), case)
                with builder.goto_block(case):
                    builder.call(_function(builder.module, v, p), values)
                    builder.branch(done)
        builder.position_at_end(done)

    return numbers_only(2 + len(_ARGUMENTS), generate)
