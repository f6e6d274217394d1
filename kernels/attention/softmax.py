"""The element-wise lines of attention between its products, for a part of a block: loops over keys,
queries as lanes.

Forward, with s the products of a query and the keys that it sees, and keys ascending:

    top = scale * max(s)
    p = exponential(scale * s - top), and +0 for masked keys
    inverse = 1 / (p_0 + p_1 + ..)                       by which the chain over p and the values is multiplied

Backward, with s computed again, and e the products of a query's output errors and the values:

    P = exponential(scale * s - top) * inverse, and +0 for masked keys
    D = fma(P, e, D), from +0
    E = (P * (e - D)) * scale                            errors of the products s

With terms t of each query and key, scale * s + t stands for scale * s, with two roundings. Sums of the
terms' errors, P * (e - D), for each distance of a query from a key, go on with queries descending.

With dropout, the chains over the values take p * kept and P * kept, and e * kept stands for e.

Where operands are narrow, the chains over the values take P * kept rounded, in both sweeps, and
nothing is multiplied by `inverse` behind them; those of E take E rounded. D and e are as they were.

Arguments are addresses, and counts; nothing is checked here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir
from numba.extending import intrinsic

from ..jit import FLOAT_BYTES, compiled
from ..llvm import (
    FLOAT,
    INDEX,
    INT,
    WIDTH,
    Lanes,
    Units,
    address,
    broadcast,
    exponential,
    for_units,
    fused,
    index,
    numbers_only,
    of_blocks,
    vector,
)
from .attention import BLOCK
from .products import PART

_VECTORS = PART // WIDTH

Row = list[Lanes]
"""A vector for each WIDTH queries of a part."""


class Scores(NamedTuple):
    """Where a part's scores lie, key by key, and its `top` and `inverse`; `scale` and `back` are the
    addresses of numbers, by which scores and their errors are multiplied.

    Its queries see `common` keys, and of the next ones, up to `keys`, number i is masked for the
    first i queries.
    """

    place: Any
    common: Any
    keys: Any
    scale: Any
    back: Any
    top: Any
    inverse: Any


def _at(builder: ir.IRBuilder, place: ir.Value, key: ir.Value | None = None) -> list[ir.Value]:
    """Return the addresses of a part's vectors, of a key, where they lie key by key."""
    row = place if key is None else builder.add(place, builder.mul(key, index(FLOAT_BYTES * BLOCK)))
    return [builder.add(row, index(FLOAT_BYTES * WIDTH * number)) for number in range(_VECTORS)]


def _load(builder: ir.IRBuilder, place: ir.Value, key: ir.Value | None = None) -> Row:
    return [Units(builder, None).load(at) for at in _at(builder, place, key)]


def _store(row: Row, place: ir.Value, key: ir.Value | None = None) -> None:
    builder = row[0].builder
    for lanes, at in zip(row, _at(builder, place, key), strict=True):
        Units(builder, None).store(lanes, at)


def _number(builder: ir.IRBuilder, place: ir.Value) -> Lanes:
    """Return the vector whose lanes all hold the number at an address."""
    return Lanes(
        builder, broadcast(builder, builder.load(address(builder, place, index(0), FLOAT)), WIDTH)
    )


def _all(builder: ir.IRBuilder, number: float) -> Row:
    return [Lanes(builder, ir.Constant(vector(WIDTH), [number] * WIDTH))] * _VECTORS


def _loop(
    builder: ir.IRBuilder,
    first: ir.Value,
    end: ir.Value,
    begin: Row,
    write: Callable[[ir.Value, Row], Row],
) -> Row:
    """Emit a loop over keys, maybe none, that carries vectors; `write` emits a key's step. Return
    the last ones.
    """
    before, loop, done = (
        builder.block,
        builder.append_basic_block("key"),
        builder.append_basic_block("keys"),
    )
    builder.cbranch(builder.icmp_signed("<", first, end), loop, done)
    builder.position_at_end(loop)
    key, carried = builder.phi(INDEX), [builder.phi(vector(WIDTH)) for _ in begin]
    results = write(key, [Lanes(builder, phi) for phi in carried])
    following = builder.add(key, index(1))
    starts = (first, *(b.value for b in begin))
    values = (following, *(r.value for r in results))
    for phi, start, value in zip((key, *carried), starts, values, strict=True):
        phi.add_incoming(start, before)
        phi.add_incoming(value, builder.block)
    builder.cbranch(builder.icmp_signed("<", following, end), loop, done)
    ends = builder.block
    builder.position_at_end(done)
    last = [builder.phi(vector(WIDTH)) for _ in begin]
    for phi, start, result in zip(last, begin, results, strict=True):
        phi.add_incoming(start.value, before)
        phi.add_incoming(result.value, ends)
    return [Lanes(builder, phi) for phi in last]


def _over(
    builder: ir.IRBuilder,
    at: Scores,
    begin: Row,
    write: Callable[[ir.Value, Callable[[Row, float], Row], Row], Row],
) -> Row:
    """Emit loops over the keys that all queries see, and over those that are masked for some.

    `write` takes a key, what puts a number in place of masked lanes, and the carried vectors.
    """

    def unmasked(row: Row, number: float) -> Row:
        return row

    middle = _loop(
        builder, index(0), at.common, begin, lambda key, carried: write(key, unmasked, carried)
    )

    def some(key: ir.Value, carried: Row) -> Row:
        least = broadcast(builder, builder.trunc(builder.sub(key, at.common), INT), WIDTH)

        def masked(row: Row, number: float) -> Row:
            chosen = []
            for place, lanes in enumerate(row):
                queries = ir.Constant(least.type, list(range(place * WIDTH, (place + 1) * WIDTH)))
                sees = builder.icmp_signed(">=", queries, least)
                chosen.append(
                    Lanes(builder, builder.select(sees, lanes.value, lanes.all(number).value))
                )
            return chosen

        return write(key, masked, carried)

    return _loop(builder, at.common, at.keys, middle, some)


@intrinsic
def softmax(context: Any, scores: Any) -> Any:
    """Turn a part's scores into p, and set its `top` and `inverse`."""

    def generate(builder: ir.IRBuilder, at: Scores) -> None:
        scale = _number(builder, at.scale)

        def largest(key: ir.Value, masked: Callable[[Row, float], Row], most: Row) -> Row:
            row = masked(_load(builder, at.place, key), -float("inf"))
            return [
                lanes.where(">", best, lanes, best) for lanes, best in zip(row, most, strict=True)
            ]

        most = _over(builder, at, _all(builder, -float("inf")), largest)
        top = [scale * lanes for lanes in most]

        def power(key: ir.Value, masked: Callable[[Row, float], Row], total: Row) -> Row:
            row = _load(builder, at.place, key)
            powers = masked(
                [exponential(scale * s - t) for s, t in zip(row, top, strict=True)], 0.0
            )
            _store(powers, at.place, key)
            return [t + p for t, p in zip(total, powers, strict=True)]

        total = _over(builder, at, _all(builder, 0.0), power)
        _store(top, at.top)
        _store([lanes.all(1.0) / lanes for lanes in total], at.inverse)

    return of_blocks(generate, scores)


@intrinsic
def normalise(context: Any, scores: Any) -> Any:
    """Turn a part's p into P."""

    def generate(builder: ir.IRBuilder, at: Scores) -> None:
        inverse = _load(builder, at.inverse)

        def change(key: ir.Value, none: Row) -> Row:
            row = _load(builder, at.place, key)
            _store([p * i for p, i in zip(row, inverse, strict=True)], at.place, key)
            return none

        _loop(builder, index(0), at.keys, [], change)

    return of_blocks(generate, scores)


@intrinsic
def score_errors(context: Any, scores: Any, errors: Any) -> Any:
    """Turn a part's scores into P, and `errors`, e, into E."""

    def generate(builder: ir.IRBuilder, at: Scores, errors: ir.Value) -> None:
        scale, back = _number(builder, at.scale), _number(builder, at.back)
        top, inverse = _load(builder, at.top), _load(builder, at.inverse)

        def shares(key: ir.Value, masked: Callable[[Row, float], Row], total: Row) -> Row:
            row, e = _load(builder, at.place, key), _load(builder, errors, key)
            own = masked(
                [exponential(scale * s - t) * i for s, t, i in zip(row, top, inverse, strict=True)],
                0.0,
            )
            _store(own, at.place, key)
            return [fused(p, one, t) for p, one, t in zip(own, e, total, strict=True)]

        total = _over(builder, at, _all(builder, 0.0), shares)

        def change(key: ir.Value, none: Row) -> Row:
            row, e = _load(builder, at.place, key), _load(builder, errors, key)
            _store(
                [(p * (one - t)) * back for p, one, t in zip(row, e, total, strict=True)],
                errors,
                key,
            )
            return none

        _loop(builder, index(0), at.keys, [], change)

    return of_blocks(generate, scores, errors)


@intrinsic
def add_terms(context: Any, scores: Any, terms: Any, scale: Any) -> Any:
    """Multiply a part's scores by the number at `scale`, and add terms: of its first query and key
    0 at `terms`, of each next key one float before.
    """

    def generate(builder: ir.IRBuilder, at: Scores, terms: ir.Value, scale: ir.Value) -> None:
        factor = _number(builder, scale)

        def change(key: ir.Value, none: Row) -> Row:
            own = _load(builder, _before(builder, terms, key))
            pairs = zip(_load(builder, at.place, key), own, strict=True)
            _store([s * factor + t for s, t in pairs], at.place, key)
            return none

        _loop(builder, index(0), at.keys, [], change)

    return of_blocks(generate, scores, terms, scale)


@intrinsic
def add_errors(context: Any, errors: Any, keys: Any, scale: Any, sums: Any) -> Any:
    """Add a part's errors of scores to sums that lie as terms do, keys descending, and multiply
    them by the number at `scale`.
    """

    def generate(
        builder: ir.IRBuilder, errors: ir.Value, keys: ir.Value, scale: ir.Value, sums: ir.Value
    ) -> None:
        factor = _number(builder, scale)

        def change(number: ir.Value, none: Row) -> Row:
            key = builder.sub(builder.sub(keys, index(1)), number)
            row, place = _load(builder, errors, key), _before(builder, sums, key)
            _store([s + e for s, e in zip(_load(builder, place), row, strict=True)], place)
            _store([e * factor for e in row], errors, key)
            return none

        _loop(builder, index(0), keys, [], change)

    return of_blocks(generate, errors, keys, scale, sums)


def _before(builder: ir.IRBuilder, place: ir.Value, count: ir.Value) -> ir.Value:
    """Return the address of the float that is `count` floats before another."""
    return builder.sub(place, builder.mul(count, index(FLOAT_BYTES)))


@intrinsic
def multiply(context: Any, place: Any, factors: Any, keys: Any) -> Any:
    """Multiply a part's numbers for each key by factors that lie as they do."""

    def generate(builder: ir.IRBuilder, place: ir.Value, factors: ir.Value, keys: ir.Value) -> None:
        def change(key: ir.Value, none: Row) -> Row:
            pairs = zip(_load(builder, place, key), _load(builder, factors, key), strict=True)
            _store([lanes * factor for lanes, factor in pairs], place, key)
            return none

        _loop(builder, index(0), keys, [], change)

    return of_blocks(generate, place, factors, keys)


@intrinsic
def _finish(context: Any, count: Any, sums: Any, out: Any, factor: Any) -> Any:
    """Set `count` <= WIDTH numbers to sums times the number at `factor`, plus +0."""

    def generate(
        builder: ir.IRBuilder, count: ir.Value, sums: ir.Value, out: ir.Value, factor: ir.Value
    ) -> None:
        scale = _number(builder, factor)
        for_units(
            builder,
            count,
            lambda units: units.store(units.load(sums) * scale + scale.all(0.0), out),
        )

    return numbers_only(4, generate)


@compiled
def finish(sums: Any, count: Any, size: Any, factors: Any, step: Any, out: Any) -> None:
    """Write `count` dense rows of sums, times their factors, `step` floats apart, to the rows
    `out`; zeros become +0.

    The sign of a sum that is zero would depend on how many masked keys were left out of it.
    """
    for row in range(count):
        for first in range(0, size, WIDTH):
            come, to = (
                sums + FLOAT_BYTES * (row * size + first),
                out.place + FLOAT_BYTES * (row * out.pitch + first),
            )
            _finish(min(WIDTH, size - first), come, to, factors + FLOAT_BYTES * row * step)
