"""Searched orders with R: beside all orders of small shapes, each within the memory, timed one by
one; within the memory by a replay; never longer than without R.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emuchain.emulator.common import InputError
from emuchain.emulator.explore import SEARCHES, Parts, Searched, search_order
from emuchain.emulator.schedule import (
    Backward,
    Kind,
    Machine,
    Schedule,
    Shape,
    StageCosts,
    Transport,
    check_complete,
    dry_run,
    parse_csv,
    to_csv,
)
from emuchain.emulator.timing import run_timeline

QUICK = dataclasses.replace(SEARCHES["search"], tried=100_000)
TIMES = st.integers(1, 9)
PARTS = st.sampled_from([Fraction(0), Fraction(1, 4), Fraction(1, 2), Fraction(1)])


@st.composite
def shapes(draw: st.DrawFn, devices: int, count: int) -> Shape:
    """Draw unequal stages, whose R takes some or all of F, and links."""
    devices, count = draw(st.integers(1, devices)), draw(st.integers(1, count))
    costs = []
    for _ in range(devices):
        forward, errors, gradients = draw(TIMES), draw(TIMES), draw(TIMES)
        sent, back = draw(st.integers(0, 5)), draw(st.integers(0, 5))
        backward, again = errors + gradients, draw(st.integers(0, forward))
        costs.append(StageCosts(forward, backward, gradients, sent, back, recompute_ps=again))
    transport = draw(st.sampled_from([Transport.STORED, Transport.HIDDEN]))
    machine = Machine(
        backward=Backward.SPLIT, transport=transport, latency_ps=draw(st.integers(0, 2))
    )
    return Shape(devices, count, tuple(costs), machine)


def change_of(kind: Kind, parts: Parts, *, redone: bool) -> Fraction | int:
    """By how much more a device keeps from an action on."""
    if kind is Kind.FORWARD:
        return parts.waiting if redone else parts.kept
    if kind is Kind.RECOMPUTE:
        return parts.kept - parts.waiting + parts.beside
    if kind is Kind.BACKWARD:
        return parts.late - parts.kept
    if kind is Kind.GRADIENT:
        return -parts.late - (parts.beside if redone else 0)
    return 0


def replayed(schedule: Schedule, parts: Sequence[Parts]) -> list[Fraction]:
    """The most that each device keeps of one stage each."""
    most = []
    for device, program in schedule.programs(range(schedule.devices)).items():
        actions = [*program]
        again = {action.index for action in actions if action.kind is Kind.RECOMPUTE}
        changes = []
        for action in actions:
            changes.append(change_of(action.kind, parts[device], redone=action.index in again))
        most.append(Fraction(max(itertools.accumulate(changes))))
    return most


Word = tuple[str, int]
KINDS = {"F": Kind.FORWARD, "R": Kind.RECOMPUTE, "B": Kind.BACKWARD, "W": Kind.GRADIENT}


def rows_within(count: int, limit: Fraction | int, parts: Parts) -> Iterator[tuple[Word, ...]]:
    """Yield all orders of one stage, F, B and W of micro-batches in turn, R of any of them."""
    for redone in itertools.product((False, True), repeat=count):
        yield from _further((), redone, limit, parts)


def _further(
    row: tuple[Word, ...],
    redone: tuple[bool, ...],
    limit: Fraction | int,
    parts: Parts,
) -> Iterator[tuple[Word, ...]]:
    count, held = len(redone), Fraction(0)
    for letter, number in row:
        held += change_of(KINDS[letter], parts, redone=redone[number])
        if held > limit:
            return
    if ("W", count - 1) in row:
        yield row
        return
    for letter in "FRBW":
        numbers = [n for n in range(count) if letter != "R" or redone[n]]
        following = next((n for n in numbers if (letter, n) not in row), None)
        if following is None or (letter != "F" and ("F", following) not in row):
            continue
        if letter == "W" and ("B", following) not in row:
            continue
        if letter == "B" and redone[following] and ("R", following) not in row:
            continue
        yield from _further((*row, (letter, following)), redone, limit, parts)


def ends_at(rows: tuple[tuple[Word, ...], ...], shape: Shape) -> int | None:
    """The time of an order by hand: each action as soon as it can; None if it deadlocks."""
    devices, ends = shape.devices, dict[tuple[str, int, int], int]()
    free, place, wires = [0] * devices, [0] * devices, {"F": [0] * devices, "B": [0] * devices}
    came = {("F", 0, number): 0 for number in range(shape.micro_batches)}
    stored, moved = shape.machine.transport is Transport.STORED, True
    while moved:
        moved = False
        for device, row in enumerate(rows):
            while place[device] < len(row):
                letter, number = row[place[device]]
                key, costs = (letter, device, number), shape.costs[device]
                if letter in "FB" and key not in came:
                    break
                begin = max(free[device], came.get(key, 0))
                takes = {"F": costs.forward_ps, "R": costs.recompute_ps, "B": costs.eb_ps}
                end = begin + takes.get(letter, costs.known_pg_ps)
                free[device] = ends[key] = end
                to = device + {"F": 1, "B": -1}.get(letter, devices)
                if letter == "F" and to == devices:
                    came["B", device, number] = end
                elif 0 <= to < devices:
                    sent = costs.transfer_ps if to > device else shape.costs[to].sent_errors_ps
                    left = max(end if stored else begin, wires[letter][device])
                    wires[letter][device] = left + sent
                    come = max(end, left + sent + shape.machine.latency_ps)
                    came[letter, to, number] = come
                place[device], moved = place[device] + 1, True
    return max(free) if all(place[d] == len(row) for d, row in enumerate(rows)) else None


def check(
    answer: Searched, shape: Shape, limits: Sequence[Fraction | int], parts: Sequence[Parts]
) -> None:
    """The order is complete, as long as it says, and within the memory."""
    dry_run(answer.schedule, aligned=True)
    check_complete(answer.schedule)
    timed = run_timeline(answer.schedule, shape.costs, shape.machine).timed
    assert max(action.end_ps for action in timed) == answer.time_ps >= answer.bound_ps
    kept = replayed(answer.schedule, parts)
    wholes = [part.kept for part in parts]
    assert [m * whole for m, whole in zip(answer.memory, wholes, strict=True)] == kept
    assert all(most <= limit for most, limit in zip(kept, limits, strict=True))
    assert replayed(parse_csv(to_csv(answer.schedule)), parts) == kept


def best_of_all(shape: Shape, limits: Sequence[Fraction | int], parts: Sequence[Parts]) -> int:
    """The time of the best of all orders within the limits."""
    devices = zip(limits, parts, strict=True)
    rows = [[*rows_within(shape.micro_batches, limit, part)] for limit, part in devices]
    times = (ends_at(order, shape) for order in itertools.product(*rows))
    return min(time for time in times if time is not None)


@given(shapes(2, 2), st.sampled_from([1, 1.5, 2]), PARTS, PARTS)
@settings(deadline=None, max_examples=25)
def test_small_orders_are_the_best_of_all(
    shape: Shape, memory: float, late: Fraction, waiting: Fraction
) -> None:
    limit = Fraction(memory)
    answer = search_order(QUICK, shape, [limit] * shape.devices, late, waiting=waiting)
    parts = [Parts(1, late, waiting)] * shape.devices  # type: ignore[arg-type]  # of a micro-batch
    check(answer, shape, [limit] * shape.devices, parts)
    assert answer.time_ps == best_of_all(shape, [limit] * shape.devices, parts)


@given(shapes(2, 2), st.data())
@settings(deadline=None, max_examples=25)
def test_stages_may_keep_different_bytes(shape: Shape, data: st.DataObject) -> None:
    """More is kept from R on than without it: what arrives, and what is made of it."""
    parts, limits = [], []
    for _ in range(shape.devices):
        kept, waiting = data.draw(st.integers(1, 9)), data.draw(st.integers(0, 9))
        late, beside = data.draw(st.integers(0, kept)), data.draw(st.integers(0, waiting))
        parts.append(Parts(kept, late, waiting, beside))
        limits.append(data.draw(st.integers(kept, 2 * (kept + beside))))
    memory = [Fraction(limit) for limit in limits]
    answer = search_order(QUICK, shape, memory, parts=parts)
    check(answer, shape, limits, parts)
    assert answer.time_ps == best_of_all(shape, limits, parts)


@pytest.mark.exhaustive
@given(
    st.one_of(shapes(1, 4), shapes(2, 3), shapes(3, 2)), st.sampled_from([1, 1.5, 2]), PARTS, PARTS
)
@settings(deadline=None, max_examples=100)
def test_larger_orders_are_the_best_of_all(
    shape: Shape, memory: float, late: Fraction, waiting: Fraction
) -> None:
    test_small_orders_are_the_best_of_all.hypothesis.inner_test(  # type: ignore[attr-defined]
        shape, memory, late, waiting
    )


@given(shapes(4, 6), st.integers(1, 3), PARTS, PARTS)
@settings(deadline=None, max_examples=20)
def test_r_never_takes_longer(shape: Shape, memory: int, late: Fraction, waiting: Fraction) -> None:
    limits = [Fraction(memory)] * shape.devices
    plain = search_order(QUICK, shape, limits, late)
    answer = search_order(QUICK, shape, limits, late, begin=plain.schedule, waiting=waiting)
    parts = [Parts(1, late, waiting)] * shape.devices  # type: ignore[arg-type]  # of a micro-batch
    check(answer, shape, limits, parts)
    assert answer.time_ps <= plain.time_ps
    assert answer.bound_ps <= plain.time_ps


def test_r_gains_where_memory_is_short() -> None:
    """Four equal stages with room for one micro-batch each: without R, one after another."""
    shape = Shape(
        4, 8, (StageCosts(2, 4, 2, recompute_ps=2),) * 4, Machine(backward=Backward.SPLIT)
    )
    search = dataclasses.replace(SEARCHES["search"], tried=2_000_000)
    plain = search_order(search, shape, [Fraction(1)] * 4)
    again = search_order(search, shape, [Fraction(1)] * 4, waiting=Fraction(0))
    assert plain.time_ps == 144 and again.time_ps <= 72


def test_bad_parts() -> None:
    shape = Shape(1, 1, (StageCosts(1, 2, 1),), Machine(backward=Backward.SPLIT))
    with pytest.raises(InputError, match="`recompute_features` = 2: must be from 0 to 1"):
        search_order(QUICK, shape, waiting=Fraction(2))
