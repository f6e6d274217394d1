"""The register tile of recurrent layers, as LLVM IR: a few samples by some vectors of lanes, over all k.

    c[s * c_step + l] = (c[s * c_step + l], or +0) + sum over k of a[s * a_step + k * a_k] * b[k][l]

Each sum takes its products one by one, in the order of k, each by one fused multiply-add; b is a packed panel. One
sample takes a whole panel: with that many sums no multiply-add waits for the one before it. More samples take fewer
vectors.

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
    INT,
    LINE_BYTES,
    address,
    broadcast,
    emit_fma,
    first_lanes,
    index,
    masked_load,
    masked_store,
    numbers_only,
    prefetch,
    vector,
)

_AHEAD = 12  # rows that are prefetched: weights that come from the third-level cache arrive in time

_ARGUMENTS = ("c", "c_step", "a", "a_step", "a_k", "b", "steps", "lanes", "fresh")


def _function(module: ir.Module, samples: int, vectors: int) -> ir.Function:
    name = f"recurrent_tile_{samples}x{vectors}"
    known = module.globals.get(name)
    if known is not None:
        return known
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [INDEX] * len(_ARGUMENTS)), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    _write(function, samples, vectors)
    return function


def _write(function: ir.Function, samples: int, vectors: int) -> None:
    c, c_step, a, a_step, a_k, b, steps, lanes, fresh = function.args
    width, kind = FORM.width, vector(FORM.width)
    names = ("entry", "load", "load_whole", "load_some", "start", "step", "store", "store_whole", "store_some", "done")
    block = {name: function.append_basic_block(name) for name in names}
    builder = ir.IRBuilder(block["entry"])
    some = builder.icmp_signed("<", lanes, index(vectors * width))
    mask = first_lanes(builder, builder.sub(lanes, index((vectors - 1) * width)), width)
    rows = [builder.mul(c_step, index(s)) for s in range(samples)]
    places = [address(builder, c, builder.add(row, index(v * width)), kind) for row in rows for v in range(vectors)]
    sources = [address(builder, a, builder.mul(a_step, index(s)), FLOAT) for s in range(samples)]
    row_bytes = FLOAT_BYTES * FORM.panel
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
        start.add_incoming(ir.Constant(kind, [0.0] * width), block["entry"])
        start.add_incoming(one, block["load_whole"])
        start.add_incoming(other, block["load_some"])
        starts.append(start)
    builder.branch(block["step"])

    builder.position_at_end(block["step"])
    step, row, offset = (builder.phi(INDEX) for _ in range(3))
    sums = [builder.phi(kind) for _ in starts]
    weights = []
    for v in range(vectors):
        weights.append(builder.load(address(builder, row, index(v * width), kind), align=FLOAT_BYTES))
        if v * width * FLOAT_BYTES % LINE_BYTES == 0:
            _prefetch(builder, builder.add(row, index(_AHEAD * row_bytes + v * width * FLOAT_BYTES)))
    products = []
    for s, source in enumerate(sources):
        value = broadcast(builder, builder.load(builder.gep(source, [offset]), align=FLOAT_BYTES), width)
        products += [emit_fma(builder, value, weight, sums[s * vectors + v]) for v, weight in enumerate(weights)]
    next_step = builder.add(step, index(1))
    next_row, next_offset = builder.add(row, index(row_bytes)), builder.add(offset, a_k)
    builder.cbranch(builder.icmp_signed("<", next_step, steps), block["step"], block["store"])
    for phi, begin, following in zip(
        [step, row, offset, *sums],
        [index(0), b, index(0), *starts],
        [next_step, next_row, next_offset, *products],
        strict=True,
    ):
        phi.add_incoming(begin, block["start"])
        phi.add_incoming(following, block["step"])

    builder.position_at_end(block["store"])
    builder.cbranch(some, block["store_some"], block["store_whole"])
    builder.position_at_end(block["store_whole"])
    for place, product in zip(places, products, strict=True):
        builder.store(product, place, align=FLOAT_BYTES)
    builder.branch(block["done"])
    builder.position_at_end(block["store_some"])
    for number, (place, product) in enumerate(zip(places, products, strict=True)):
        if number % vectors == vectors - 1:
            masked_store(builder, product, place, mask, width)
        else:
            builder.store(product, place, align=FLOAT_BYTES)
    builder.branch(block["done"])
    builder.position_at_end(block["done"])
    builder.ret_void()


def _prefetch(builder: ir.IRBuilder, place: ir.Value) -> None:
    """Prefetch the cache line at `place` into the first-level cache. Any address will do."""
    name, byte = "llvm.prefetch.p0", ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, INT, INT, INT])
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    builder.call(function, [builder.inttoptr(place, byte), *(ir.Constant(INT, value) for value in (0, 3, 1))])


@intrinsic
def prefetch_line(context: Any, place: Any) -> Any:
    """Prefetch the cache line at an address into the second-level cache."""
    return numbers_only(1, prefetch)


@intrinsic
def run_tile(
    context: Any,
    samples: Any,
    vectors: Any,
    c: Any,
    c_step: Any,
    a: Any,
    a_step: Any,
    a_k: Any,
    b: Any,
    steps: Any,
    lanes: Any,
    fresh: Any,
) -> Any:
    """Run a tile of `samples` by `vectors` vectors, whose first `lanes` lanes belong to c.

    `vectors` is a power of two. There is at least one step, and a lane in the last vector. Where `fresh` is not 0, sums
    start from +0.
    """

    def generate(builder: ir.IRBuilder, samples: ir.Value, vectors: ir.Value, *values: ir.Value) -> None:
        done = builder.append_basic_block("ran")
        most = FORM.panel_vectors[0] + 1
        switch = builder.switch(builder.add(builder.mul(samples, index(most)), vectors), done)
        for s, most_vectors in enumerate(FORM.panel_vectors, 1):
            for v in (size for size in (1, 2, 4, 8) if size <= most_vectors):
                case = builder.append_basic_block(f"case_{s}x{v}")
                switch.add_case(index(s * most + v), case)
                with builder.goto_block(case):
                    builder.call(_function(builder.module, s, v), values)
                    builder.branch(done)
        builder.position_at_end(done)

    return numbers_only(2 + len(_ARGUMENTS), generate)
