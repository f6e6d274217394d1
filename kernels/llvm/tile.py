"""Register tiles, as LLVM IR: some rows by some vectors of sums, which stay in registers while
products are added.

    c[row][lane] = (c[row][lane], or +0) + sum over k of a[row][k] * b[k][lane]

Each sum takes its products one by one, in the order of k, each by one fused multiply-add. Each step
loads the vectors of b, and for each row one number of a, copied to all lanes. Only IR guarantees
what stays in registers. There is a function for every size of a tile, so that the last rows and
lanes cost no more than their share. Where a and b of a step lie, and what is prefetched, belongs to
who emits the tile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

from llvmlite import ir

from ..form import FORM
from ..jit import FLOAT_BYTES
from .emit import INDEX, broadcast, emit_fma, first_lanes, index, masked_load, masked_store, vector

Values = list[ir.Value]
Step = Callable[[Values, Values], tuple[Values, Values, ir.Value]]
"""Emits a step: from the loop's variables and the sums to those of the next step, and whether there
is one.
"""


def tile_function(
    module: ir.Module, name: str, arguments: Sequence[str], write: Callable[..., None]
) -> ir.Function:
    """Return the function of this name; if it is new, `write` emits it, from a builder and its
    arguments by name.
    """
    if name in module.globals:
        return module.globals[name]
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [INDEX] * len(arguments)), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    write(builder, SimpleNamespace(**dict(zip(arguments, function.args, strict=True))))
    builder.ret_void()
    return function


def call_by_size(
    builder: ir.IRBuilder,
    sizes: Iterable[tuple[int, int]],
    size: tuple[ir.Value, ir.Value],
    call: Callable[..., Any],
) -> None:
    """Emit a branch to `call` for each of the sizes (vectors, rows), and for no other."""
    most = FORM.most_rows + 1
    done = builder.append_basic_block("ran")
    switch = builder.switch(builder.add(builder.mul(size[0], index(most)), size[1]), done)
    for vectors, rows in sizes:
        case = builder.append_basic_block(f"case_{vectors}x{rows}")
        switch.add_case(index(vectors * most + rows), case)
        with builder.goto_block(case):
            call(vectors, rows)
            builder.branch(done)
    builder.position_at_end(done)


def emit_sums(
    builder: ir.IRBuilder,
    vectors: int,
    places: Values,
    lanes: ir.Value,
    fresh: ir.Value,
    begins: Values,
    step: Step,
) -> None:
    """Emit the loop of a tile, at least one step of it, with its sums from `places`, or from +0
    where `fresh` is not 0. A step may have loops of its own.

    `places` are those of the vectors, row by row; of the last vector of a row, only the first of
    `lanes` lanes are read and written. `begins` are the first values of the loop's variables,
    64-bit integers.
    """
    width, kind, before = FORM.width, vector(FORM.width), builder.block
    some = builder.icmp_signed("<", lanes, index(vectors * width))
    mask = first_lanes(builder, builder.sub(lanes, index((vectors - 1) * width)), width)
    names = (
        "load",
        "load_whole",
        "load_some",
        "start",
        "step",
        "store",
        "store_whole",
        "store_some",
        "stored",
    )
    block = {name: builder.append_basic_block(name) for name in names}
    is_last = [number % vectors == vectors - 1 for number in range(len(places))]
    builder.cbranch(builder.icmp_signed("!=", fresh, index(0)), block["start"], block["load"])

    builder.position_at_end(block["load"])
    builder.cbranch(some, block["load_some"], block["load_whole"])
    builder.position_at_end(block["load_whole"])
    whole = [builder.load(place, align=FLOAT_BYTES) for place in places]
    builder.branch(block["start"])
    builder.position_at_end(block["load_some"])
    parts = [
        masked_load(builder, place, mask, width) if last else builder.load(place, align=FLOAT_BYTES)
        for place, last in zip(places, is_last, strict=True)
    ]
    builder.branch(block["start"])

    builder.position_at_end(block["start"])
    starts = []
    for one, other in zip(whole, parts, strict=True):
        start = builder.phi(kind)
        start.add_incoming(ir.Constant(kind, [0.0] * width), before)
        start.add_incoming(one, block["load_whole"])
        start.add_incoming(other, block["load_some"])
        starts.append(start)
    builder.branch(block["step"])

    builder.position_at_end(block["step"])
    variables = [builder.phi(INDEX) for _ in begins]
    sums = [builder.phi(kind) for _ in starts]
    following, results, goes_on = step(variables, sums)
    after = builder.block
    for phi, begin, value in zip(
        [*variables, *sums], [*begins, *starts], [*following, *results], strict=True
    ):
        phi.add_incoming(begin, block["start"])
        phi.add_incoming(value, after)
    builder.cbranch(goes_on, block["step"], block["store"])

    builder.position_at_end(block["store"])
    builder.cbranch(some, block["store_some"], block["store_whole"])
    for name, masks in (("store_whole", [False] * len(places)), ("store_some", is_last)):
        builder.position_at_end(block[name])
        for place, result, masked in zip(places, results, masks, strict=True):
            if masked:
                masked_store(builder, result, place, mask, width)
            else:
                builder.store(result, place, align=FLOAT_BYTES)
        builder.branch(block["stored"])
    builder.position_at_end(block["stored"])


def add_products(
    builder: ir.IRBuilder, sources: Values, offset: ir.Value, weights: Values, sums: Values
) -> Values:
    """Return the sums with a step's products: of the number `offset` floats after each source, and
    all weights.
    """
    results = []
    for row, source in enumerate(sources):
        number = builder.load(builder.gep(source, [offset]), align=FLOAT_BYTES)
        value, first = broadcast(builder, number, FORM.width), row * len(weights)
        results += [
            emit_fma(builder, value, weight, sums[first + v]) for v, weight in enumerate(weights)
        ]
    return results
