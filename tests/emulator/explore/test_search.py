"""Searched orders: beside exhaustive search and a mixed-integer program, which know nothing of it;
beside the orders of kinds that ship; and beside figures of Zero Bubble's authors.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emuchain.emulator.common import InputError
from emuchain.emulator.explore import BY_TIMES, SEARCHES, Search, Searched, search_order
from emuchain.emulator.schedule import (
    PASSES,
    Action,
    Backward,
    Engines,
    Kind,
    Machine,
    MicroBatch,
    Schedule,
    Shape,
    StageCosts,
    Transport,
    check_complete,
    kept_micro_batches,
    pipeline_kind,
    pipelines,
)
from emuchain.emulator.timing import run_timeline, time_shape

SPLIT = Machine(backward=Backward.SPLIT)
TIMES = st.integers(1, 12)
QUICK = dataclasses.replace(SEARCHES["search"], tried=100_000)


@st.composite
def shapes(draw: st.DrawFn, devices: int, count: int, *, plain: bool = False) -> Shape:
    """Draw unequal stages, at most as many, with links; `plain` ones have W apart on free links."""
    devices, count = draw(st.integers(1, devices)), draw(st.integers(1, count))
    costs = []
    for _ in range(devices):
        errors, gradients = draw(TIMES), draw(TIMES)
        sent, back = (0, None) if plain else (draw(st.integers(0, 9)), draw(st.integers(0, 9)))
        costs.append(StageCosts(draw(TIMES), errors + gradients, gradients, sent, back))
    machine = SPLIT
    if not plain:
        transport = draw(st.sampled_from([Transport.STORED, Transport.HIDDEN]))
        machine = dataclasses.replace(
            SPLIT, transport=transport, latency_ps=draw(st.integers(0, 3))
        )
    return Shape(devices, count, tuple(costs), machine)


def makespan(schedule: Schedule, shape: Shape) -> int:
    timed = run_timeline(schedule, shape.costs, shape.machine).timed
    return max(action.end_ps for action in timed)


def longest_span(schedule: Schedule, shape: Shape) -> int:
    """The longest time of a device from its first action to its last."""
    spans = dict[int, tuple[int, int]]()
    for timed in run_timeline(schedule, shape.costs, shape.machine).timed:
        first, last = spans.get(timed.device, (timed.start_ps, timed.end_ps))
        spans[timed.device] = min(first, timed.start_ps), max(last, timed.end_ps)
    return max(last - first for first, last in spans.values())


def rows_within(count: int, limit: int) -> Iterator[tuple[Action, ...]]:
    """Yield all orders of one stage's actions that keep no more micro-batches."""

    def further(
        row: tuple[Action, ...], done: tuple[int, int, int]
    ) -> Iterator[tuple[Action, ...]]:
        if len(row) == len(PASSES) * count:
            yield (*row, Action(Kind.UPDATE, 1))
        for place, kind in enumerate(PASSES):
            number = done[place]
            if number == (done[place - 1] if place else count):
                continue
            if kind is Kind.FORWARD and number - done[2] >= limit:
                continue
            action = Action(kind, number, None if kind is Kind.GRADIENT else 0)
            counts = [*done]
            counts[place] += 1
            yield from further((*row, action), (counts[0], counts[1], counts[2]))

    return further((), (0, 0, 0))


def shortest(shape: Shape, limit: int) -> int:
    """The least time of all orders, each run on the timeline."""
    found = search_order(QUICK, shape, [Fraction(limit)] * shape.devices).schedule
    times = []
    for rows in itertools.product([*rows_within(shape.micro_batches, limit)], repeat=shape.devices):
        order = dataclasses.replace(
            found,
            programs=lambda devices, rows=rows: {device: iter(rows[device]) for device in devices},
        )
        try:
            times.append(makespan(order, shape))
        except InputError as error:
            assert "deadlock" in str(error)
    return min(times)


def by_program(shape: Shape, limit: int) -> int:
    """The least time by a mixed-integer program, on links that are never occupied.

    Its binaries say which of two actions of a device comes first, by big M.
    """
    optimize = pytest.importorskip("scipy.optimize")
    np = pytest.importorskip("numpy")
    devices, count = shape.devices, shape.micro_batches
    steps = [*itertools.product(range(devices), range(3), range(count))]
    number = {step: place for place, step in enumerate(steps)}
    takes = {}
    for device, costs in enumerate(shape.costs):
        for kind, time in enumerate((costs.forward_ps, costs.eb_ps, costs.known_pg_ps)):
            takes |= {(device, kind, batch): time for batch in range(count)}
    pairs = [
        (first, second)
        for first, second in itertools.combinations(steps, 2)
        if first[0] == second[0] and first[1] != second[1] and not first[2] <= second[2]
    ]
    whole = sum(takes.values()) + sum(
        count * (costs.transfer_ps + costs.sent_errors_ps) for costs in shape.costs
    )
    columns, rows, least = len(steps) + len(pairs) + 1, list[Any](), list[float]()

    def at_least(bound: float, **_: Any) -> Any:
        rows.append(np.zeros(columns))
        least.append(bound)
        return rows[-1]

    def after(step: Any, before: Any, late: int = 0) -> None:
        row = at_least(takes[before] + late)
        row[number[step]] += 1
        row[number[before]] -= 1

    for device, kind, batch in steps:
        step = device, kind, batch
        if batch:
            after(step, (device, kind, batch - 1))
        if kind:
            after(step, (device, kind - 1, batch))
        if kind == 0 and device:
            after(step, (device - 1, 0, batch), shape.costs[device - 1].transfer_ps)
        if kind == 1 and device + 1 < devices:
            after(step, (device + 1, 1, batch), shape.costs[device].sent_errors_ps)
        if kind == 0 and batch >= limit:
            after(step, (device, 2, batch - limit))
        row = at_least(takes[step])
        row[-1], row[number[step]] = 1, -1
    for place, (first, second) in enumerate(pairs, len(steps)):
        for one, other, sign in ((first, second, 1), (second, first, -1)):
            row = at_least(takes[one] - (whole if sign == 1 else 0))
            row[number[other]], row[number[one]], row[place] = 1, -1, -sign * whole
    aim, integral = np.zeros(columns), np.zeros(columns)
    aim[-1] = 1
    integral[len(steps) : -1] = 1
    upper = np.full(columns, np.inf)
    upper[len(steps) : -1] = 1
    solved = optimize.milp(
        aim,
        constraints=optimize.LinearConstraint(np.array(rows), least),
        integrality=integral,
        bounds=optimize.Bounds(0, upper),
    )
    assert solved.success
    return round(solved.fun)


@settings(max_examples=8, deadline=None)
@given(st.data())
def test_small_ones_are_the_best_of_all(data: st.DataObject) -> None:
    shape = data.draw(shapes(2, 3))
    limit = data.draw(st.integers(1, shape.micro_batches))
    found = search_order(QUICK, shape, [Fraction(limit)] * shape.devices)
    assert found.time_ps == found.bound_ps == shortest(shape, limit)


def check_by_program(data: st.DataObject, devices: int, count: int) -> None:
    """By the search as it ships: a few of these take more than 100,000 tries."""
    shape = data.draw(shapes(devices, count, plain=True))
    limit = data.draw(st.integers(1, shape.micro_batches))
    shortest_order = search_order(SEARCHES["search"], shape, [Fraction(limit)] * shape.devices)
    assert shortest_order.time_ps == shortest_order.bound_ps == by_program(shape, limit)


@settings(max_examples=3, deadline=None)
@given(st.data())
def test_small_ones_are_those_of_a_mixed_integer_program(data: st.DataObject) -> None:
    check_by_program(data, 3, 3)


@pytest.mark.exhaustive
@settings(max_examples=500, deadline=None)
@given(st.data())
def test_all_up_to_4_x_4_are_those_of_a_mixed_integer_program(data: st.DataObject) -> None:
    check_by_program(data, 4, 4)


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_an_order_is_complete_and_in_the_memory(data: st.DataObject) -> None:
    """And takes on the timeline what the search says, not less than its bound."""
    shape = data.draw(shapes(5, 9))
    limits = [
        Fraction(data.draw(st.integers(2, 2 * shape.micro_batches)), 2)
        for _ in range(shape.devices)
    ]
    found = search_order(QUICK, shape, limits)
    check_complete(found.schedule)
    assert makespan(found.schedule, shape) == found.time_ps >= found.bound_ps
    for device, program in found.schedule.programs(range(shape.devices)).items():
        [kept] = kept_micro_batches(program, 1, Kind.GRADIENT)
        assert kept == found.memory[device] <= limits[device]


def check_beside_kinds(data: st.DataObject, devices: int, count: int) -> None:
    """In the memory that a kind needs with W apart, and of zero-bubble in its own."""
    shape = data.draw(shapes(devices, count))
    names = [name for name, kind in pipelines().items() if kind.drains and kind.chunks == 1]
    name = data.draw(st.sampled_from(sorted(names)))
    shipped = time_shape(pipeline_kind(name), shape)
    found = search_order(QUICK, shape, shipped.features)
    assert found.time_ps <= shipped.makespan_ps


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_never_longer_than_a_kind_that_ships(data: st.DataObject) -> None:
    check_beside_kinds(data, 5, 9)


@pytest.mark.exhaustive
@settings(max_examples=300, deadline=None)
@given(st.data())
def test_never_longer_than_a_kind_on_long_chains(data: st.DataObject) -> None:
    check_beside_kinds(data, 12, 40)


def check_zero_bubble(data: st.DataObject, devices: int, count: int) -> None:
    """1F1B with W apart keeps no more than zero-bubble may, and fused 1F1B as much."""
    shape = data.draw(shapes(devices, count))
    fused = dataclasses.replace(shape.machine, backward=Backward.FUSED)
    kind = pipeline_kind("1f1b-sno")
    apart = time_shape(kind, shape).makespan_ps
    whole = time_shape(kind, dataclasses.replace(shape, machine=fused)).makespan_ps
    found = search_order(BY_TIMES["zero-bubble"], shape)
    assert found.time_ps <= apart <= whole
    assert max(found.memory) <= shape.devices


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_zero_bubble_is_never_longer_than_1f1b(data: st.DataObject) -> None:
    check_zero_bubble(data, 6, 12)


@pytest.mark.exhaustive
@settings(max_examples=2000, deadline=None)
@given(st.data())
def test_zero_bubble_is_never_longer_than_1f1b_on_2000(data: st.DataObject) -> None:
    check_zero_bubble(data, 8, 16)


def of_paper(name: str, devices: int, count: int, *times: int) -> tuple[Searched, Shape]:
    forward, errors, gradients, sent = times
    search = dataclasses.replace(SEARCHES[name], tried=50_000_000)
    costs = StageCosts(forward, errors + gradients, gradients, sent)
    shape = Shape(devices, count, (costs,) * (devices * search.chunks), SPLIT, search.chunks)
    return search_order(search, shape), shape


def bubble(found: Searched, shape: Shape) -> float:
    work = sum(costs.work_ps for costs in shape.costs) * shape.micro_batches
    return 1 - work / (shape.devices * found.time_ps)


def test_zb_2p_of_its_authors() -> None:
    """Qi et al., Tables 4 and 5, 1.5B, 24 micro-batches: calculated is 0.0433."""
    found, shape = of_paper("zb-2p", 8, 24, 18522, 18086, 9337, 601)
    assert bubble(found, shape) == pytest.approx(0.0433, abs=5e-5)
    assert found.time_ps == found.bound_ps == longest_span(found.schedule, shape)
    assert max(found.memory) <= 16


@pytest.mark.parametrize(
    ("devices", "count", "times", "calculated"),
    [
        (16, 48, (14407, 14380, 9676, 1610), 0.0697),
        (24, 72, (6763, 6969, 5251, 755), 0.0638),
    ],
)
def test_zb_v_of_its_authors(
    devices: int, count: int, times: Sequence[int], calculated: float
) -> None:
    """Qi et al., Tables 6 and 8."""
    found, shape = of_paper("zb-v", devices, count, *times)
    assert bubble(found, shape) <= calculated + 0.002
    assert found.time_ps == longest_span(found.schedule, shape) >= found.bound_ps
    assert max(found.memory) <= devices


def test_mini_batches_one_after_another_take_the_longest_span() -> None:
    """Ten of them take nine spans more than one, as each device goes on at once."""
    found, shape = of_paper("zb-2p", 4, 8, 10, 11, 6, 1)
    once = found.schedule
    micro_batches, rows = list[MicroBatch](), [list[Action]() for _ in range(4)]
    for step in range(10):
        for batch in once.micro_batches:
            first = 8 * step + batch.index
            micro_batches.append(MicroBatch(first, step, first, first + 1))
        for device, program in once.programs(range(4)).items():
            rows[device] += [_later(action, step) for action in program]
    ten = dataclasses.replace(
        once,
        micro_batches=micro_batches,
        programs=lambda devices: {device: iter(rows[device]) for device in devices},
    )
    assert makespan(ten, shape) <= makespan(once, shape) + 9 * found.time_ps


def _later(action: Action, step: int) -> Action:
    """The action of a mini-batch of eight micro-batches that is `step` later."""
    if action.kind is Kind.UPDATE:
        return Action(Kind.UPDATE, action.index + step)
    return action.moved(8 * step, step)


def test_the_same_question_has_the_same_answer() -> None:
    costs = tuple(StageCosts(f, b + w, w, 1) for f, b, w in ((3, 5, 2), (4, 4, 4), (2, 7, 1)))
    shape = Shape(3, 20, costs, SPLIT)
    first, second = (search_order(QUICK, shape, [Fraction(3)] * 3) for _ in range(2))
    orders = [[*found.schedule.programs([0])[0]] for found in (first, second)]
    assert first.time_ps == second.time_ps and orders[0] == orders[1]


BAD = {
    "room": (SPLIT, [Fraction(1, 2)] * 2, None, "`memory` = 0.5: device 0 needs room for 1"),
    "engines": (
        Machine(Engines.SPLIT, Transport.HIDDEN, Backward.SPLIT),
        None,
        None,
        "searches orders for devices that do one action after another",
    ),
    "fused": (Machine(), None, None, "has W apart from B; leave out --fused"),
    "share": (SPLIT, None, Fraction(3, 2), "`gradient_features` = 3/2: must be from 0 to 1"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name: str) -> None:
    machine, memory, share, message = BAD[name]
    shape = Shape(2, 2, (StageCosts(1, 2, 1),) * 2, machine)
    with pytest.raises(InputError) as error:
        search_order(Search("search", ""), shape, memory, share)
    assert message in str(error.value)
