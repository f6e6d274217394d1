"""What the steps of LSTM and GRU are made of: products of rows and packed weights; sigmoid and tanh
of arrays, and errors of the outputs.

    c[s * c_step + l] = (c[s * c_step + l], or +0) + sum over k of a[s * a_step + k * a_k] * b[k][l]

b is in panels of ROW lanes. A tile (`llvm/tile.py`) is a few samples s by some vectors of lanes l.
One sample takes a whole panel: with that many sums no multiply-add waits for the one before it.
More samples take fewer vectors.

Arguments are addresses, and counts of floats; nothing is checked here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.extending import intrinsic

from ..conv.microkernel import even_share
from ..form import FORM
from ..jit import FLOAT_BYTES, compiled
from ..llvm import (
    FLOAT,
    LINE_BYTES,
    WIDTH,
    Lanes,
    Units,
    add_products,
    address,
    call_by_size,
    clear,
    emit_sums,
    for_units,
    index,
    numbers_only,
    of_blocks,
    prefetch,
    sigmoid,
    tanh,
    tile_function,
    vector,
)

ROW, MOST_SAMPLES = FORM.panel, len(FORM.panel_vectors)
_VECTORS = np.array(FORM.panel_vectors)
_FEWER = np.array(
    [0, 0, 1, 2, 2, 4, 4, 4, 4]
)  # the next smaller number of vectors for which there is code
_STEPS = 192  # of k at a time, where several tiles of samples read the same panel
_AHEAD = 12  # rows that are prefetched: weights that come from the third-level cache arrive in time


class Tile(NamedTuple):
    """What a tile reads and writes, in a panel: `steps` of k, `lanes` of c; where `fresh` is not 0,
    from +0.
    """

    c: int
    c_step: int
    a: int
    a_step: int
    a_k: int
    b: int
    steps: int
    lanes: int
    fresh: int


@intrinsic
def _run_tile(context: Any, size: Any, at: Any) -> Any:
    """Run a tile of a size (vectors, samples); vectors are a power of two.

    There is at least one step, and a lane in the last vector.
    """

    def generate(builder: ir.IRBuilder, size: tuple[ir.Value, ir.Value], at: Tile) -> None:
        def call(vectors: int, samples: int) -> None:
            def write(builder: ir.IRBuilder, at: Any) -> None:
                _write(builder, vectors, samples, at)

            name = f"recurrent_tile_{samples}x{vectors}"
            builder.call(tile_function(builder.module, name, Tile._fields, write), [*at])

        sizes = [
            (v, s)
            for s, most in enumerate(FORM.panel_vectors, 1)
            for v in (1, 2, 4, 8)
            if v <= most
        ]
        call_by_size(builder, sizes, size, call)

    return of_blocks(generate, size, at)


def _write(builder: ir.IRBuilder, vectors: int, samples: int, at: Any) -> None:
    width, kind, row_bytes = FORM.width, vector(FORM.width), FLOAT_BYTES * ROW
    rows = [builder.mul(at.c_step, index(s)) for s in range(samples)]
    places = [
        address(builder, at.c, builder.add(row, index(v * width)), kind)
        for row in rows
        for v in range(vectors)
    ]
    sources = [
        address(builder, at.a, builder.mul(at.a_step, index(s)), FLOAT) for s in range(samples)
    ]

    def step(
        variables: list[ir.Value], sums: list[ir.Value]
    ) -> tuple[list[ir.Value], list[ir.Value], ir.Value]:
        number, row, offset = variables
        weights = []
        for v in range(vectors):
            weights.append(
                builder.load(address(builder, row, index(v * width), kind), align=FLOAT_BYTES)
            )
            lane_bytes = v * width * FLOAT_BYTES
            if lane_bytes % LINE_BYTES == 0:
                prefetch(
                    builder, builder.add(row, index(_AHEAD * row_bytes + lane_bytes)), nearest=True
                )
        results = add_products(builder, sources, offset, weights, sums)
        following = [
            builder.add(number, index(1)),
            builder.add(row, index(row_bytes)),
            builder.add(offset, at.a_k),
        ]
        return following, results, builder.icmp_signed("<", following[0], at.steps)

    emit_sums(builder, vectors, places, at.lanes, at.fresh, [index(0), at.b, index(0)], step)


@compiled
def run_tiles(samples: Any, whole: Any) -> None:
    """Run a `Tile` of any number of samples, over up to ROW lanes, as several tiles."""
    vectors, lane = _VECTORS[min(samples, MOST_SAMPLES) - 1], 0
    while lane < whole.lanes:
        while vectors * WIDTH >= whole.lanes - lane + WIDTH:  # the last ones take 4, 2 or 1 vectors
            vectors = _FEWER[vectors]
        some, s = min(vectors * WIDTH, whole.lanes - lane), 0
        while s < samples:
            size = even_share(samples - s, MOST_SAMPLES)
            tile = Tile(
                c=whole.c + FLOAT_BYTES * (s * whole.c_step + lane),
                c_step=whole.c_step,
                a=whole.a + FLOAT_BYTES * s * whole.a_step,
                a_step=whole.a_step,
                a_k=whole.a_k,
                b=whole.b + FLOAT_BYTES * lane,
                steps=whole.steps,
                lanes=some,
                fresh=whole.fresh,
            )
            _run_tile((vectors, size), tile)
            s += size
        lane += some


@compiled
def product(operands: Any, fresh: Any, turn: Any) -> None:
    """Run a `Product`, from +0 where `fresh`, else added to c.

    Panels are read from the first to the last; where `turn` is odd, from the last to the first. If
    each call takes the other way, the panels that the one before it has read last are still in the
    cache.
    """
    panels = (operands.lanes + ROW - 1) // ROW
    part = operands.depth if operands.samples <= MOST_SAMPLES else _STEPS
    for number in range(panels):
        lane = ROW * (panels - 1 - number if turn % 2 else number)
        k = 0
        while k < operands.depth:
            steps = even_share(operands.depth - k, part)
            tile = Tile(
                c=operands.c + FLOAT_BYTES * lane,
                c_step=operands.c_step,
                a=operands.a + FLOAT_BYTES * k * operands.a_k,
                a_step=operands.a_step,
                a_k=operands.a_k,
                b=operands.b + FLOAT_BYTES * (lane * operands.depth + k * ROW),
                steps=steps,
                lanes=min(ROW, operands.lanes - lane),
                fresh=1 if fresh and k == 0 else 0,
            )
            run_tiles(operands.samples, tile)
            k += steps


@intrinsic
def _apply(context: Any, is_tanh: Any, count: Any, x: Any, y: Any) -> Any:
    """Set y to sigmoid or tanh of `count` <= WIDTH numbers x."""

    def generate(
        builder: ir.IRBuilder, is_tanh: ir.Value, count: ir.Value, x: ir.Value, y: ir.Value
    ) -> None:
        def write(units: Units) -> None:
            given = units.load(x)
            wanted = builder.icmp_signed("!=", is_tanh, ir.Constant(is_tanh.type, 0))
            result = builder.select(wanted, tanh(given).value, sigmoid(given).value)
            units.store(Lanes(builder, result), y)

        for_units(builder, count, write)

    return numbers_only(4, generate)


@compiled
def apply(is_tanh: Any, count: Any, x: Any, y: Any) -> None:
    """Set y to sigmoid (0) or tanh (1) of `count` numbers; `x` and `y` are addresses."""
    for first in range(0, count, WIDTH):
        _apply(is_tanh, min(WIDTH, count - first), x + FLOAT_BYTES * first, y + FLOAT_BYTES * first)


@intrinsic
def _total_error(context: Any, count: Any, dy: Any, dh: Any, carry: Any, out: Any) -> Any:
    """Set out = dy + (dh + carry)."""

    def generate(
        builder: ir.IRBuilder,
        count: ir.Value,
        dy: ir.Value,
        dh: ir.Value,
        carry: ir.Value,
        out: ir.Value,
    ) -> None:
        def write(units: Units) -> None:
            units.store(units.load(dy) + (units.load(dh) + units.load(carry)), out)

        for_units(builder, count, write)

    return numbers_only(5, generate)


@intrinsic
def _kept_error(context: Any, count: Any, dh: Any, carry: Any) -> Any:
    """Set carry = dh + carry."""

    def generate(builder: ir.IRBuilder, count: ir.Value, dh: ir.Value, carry: ir.Value) -> None:
        def write(units: Units) -> None:
            units.store(units.load(dh) + units.load(carry), carry)

        for_units(builder, count, write)

    return numbers_only(3, generate)


@compiled
def total_error(units: Any, dy: Any, dh: Any, carry: Any, out: Any) -> None:
    """Set out = dy + (dh + carry) for all units of a sample, and carry = 0."""
    for first in range(0, units, WIDTH):
        at = FLOAT_BYTES * first
        _total_error(min(WIDTH, units - first), dy + at, dh + at, carry + at, out + at)
    clear(carry, units)


@compiled
def keep_error(units: Any, dh: Any, carry: Any) -> None:
    """Set carry = dh + carry for all units of a sample whose sequence has ended at this step."""
    for first in range(0, units, WIDTH):
        at = FLOAT_BYTES * first
        _kept_error(min(WIDTH, units - first), dh + at, carry + at)
