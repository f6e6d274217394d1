"""A loop in stages: bursts are prepared some rounds before they are stored (software pipelining).

Where a burst goes depends on the tags before it, and tags come out of a long chain of vector instructions. A processor
that meets the loads and stores of a burst right after this chain holds them until it is through, and soon has no room
for more: it waits, though hardly any of them depends on another. So their tags are made some rounds before.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from llvmlite import ir

from ..llvm import INDEX, index

STAGES = 4
"""Rounds between preparing and storing: fewer leave the processor waiting, and more do not make it faster."""
IN_STAGES = STAGES, 0
"""Two loops: one in stages, and one for what is too little for it."""

Prepare = Callable[[ir.Value], tuple[ir.Value, ...]]
"""Emits what comes of the values at an address before it is known where it goes."""
Finish = Callable[..., ir.Value]
"""Emits the stores, from the address of the values, that of the output, and what was prepared; returns their end."""
Span = tuple[ir.Value, ir.Value]
"""Two addresses: where something begins, and where it ends."""


def emit_stages(
    builder: ir.IRBuilder,
    prepare: Prepare,
    finish: Finish,
    steps: tuple[int, int],
    values: Span,
    out: Span,
    loops: tuple[int, ...] = IN_STAGES,
) -> tuple[ir.Value, ir.Value]:
    """Emit loops over the values while there are any and there is room; return where they have come to in both.

    `steps` are the bytes of values of a round, and the most that it may write; `loops` the stages of each loop.
    """
    (place, end), (at, last) = values, out
    for stages in loops:
        place, at = _emit_loop(builder, stages, prepare, finish, steps, (place, end), (at, last))
    return place, at


def _emit_loop(
    builder: ir.IRBuilder,
    stages: int,
    prepare: Prepare,
    finish: Finish,
    steps: tuple[int, int],
    values: Span,
    out: Span,
) -> tuple[ir.Value, ir.Value]:
    (source, end), (begin, last) = values, out
    step, most = steps
    rounds = max(stages, 1)  # of an iteration: with as many as stages, each value stays in its register
    last_place = builder.sub(end, index(step * (stages + rounds)))
    last_at = builder.sub(last, index(most * (stages + rounds)))

    def ahead(place: ir.Value, rounds: int) -> ir.Value:
        return builder.add(place, index(step * rounds))

    def goes_on(place: ir.Value, at: ir.Value) -> ir.Value:
        """Whether there are values, and room, for an iteration and for what it prepares."""
        is_before = builder.icmp_signed("<=", place, last_place)
        return builder.and_(is_before, builder.icmp_signed("<=", at, last_at))

    before = builder.block
    first, loop, rest, after = (builder.append_basic_block(name) for name in ("first", "loop", "rest", "after"))
    builder.cbranch(goes_on(source, begin), first, after)

    builder.position_at_end(first)
    prepared = [prepare(ahead(source, stage)) for stage in range(stages)]
    builder.branch(loop)

    builder.position_at_end(loop)
    place, at = builder.phi(INDEX), builder.phi(INDEX)
    waiting = [tuple(builder.phi(value.type) for value in one) for one in prepared]
    line, next_at = [*waiting], at
    for number in range(rounds):
        line.append(prepare(ahead(place, stages + number)))
        next_at = finish(ahead(place, number), next_at, *line.pop(0))
    next_place = ahead(place, rounds)
    nexts = [next_place, next_at, *itertools.chain(*line)]
    starts = [source, begin, *itertools.chain(*prepared)]
    for phi, start, following in zip([place, at, *itertools.chain(*waiting)], starts, nexts, strict=True):
        phi.add_incoming(start, first)
        phi.add_incoming(following, loop)
    builder.cbranch(goes_on(next_place, next_at), loop, rest)

    builder.position_at_end(rest)
    end_at = next_at
    for number, one in enumerate(line):
        end_at = finish(ahead(next_place, number), end_at, *one)
    end_place = ahead(next_place, stages)
    builder.branch(after)

    builder.position_at_end(after)
    reached = builder.phi(INDEX), builder.phi(INDEX)
    for phi, unchanged, changed in zip(reached, (source, begin), (end_place, end_at), strict=True):
        phi.add_incoming(unchanged, before)
        phi.add_incoming(changed, rest)
    return reached
