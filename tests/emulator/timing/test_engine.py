"""The timeline engine on random stages: what must be true of any timeline; and schedules that it
refuses.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.common import InputError
from emuchain.emulator.schedule import (
    Backward,
    Engines,
    Kind,
    Machine,
    Schedule,
    Shape,
    StageCosts,
    Transport,
    dry_run,
    parse,
    pipeline_kind,
    pipelines,
    to_text,
)
from emuchain.emulator.timing import (
    Step,
    Timed,
    least_time_ps,
    run_timeline,
    schedule_of,
    time_pipeline,
)

from .shapes import shape_of

NAMES = sorted(pipelines())
BY_HAND = """schedule own, 2 devices
micro-batches 0:1 1:2
0F0v0 0F1v0 0B0v0 0W0 0B1v0 0W1 0U1
1F0v0 1B0v0 1W0 1F1v0 1B1v0 1W1 1U1
"""
COSTS = [StageCosts(2, 3, transfer_ps=1)] * 2


@st.composite
def stage_costs(draw: st.DrawFn) -> StageCosts:
    errors, gradients = draw(st.integers(1, 20)), draw(st.integers(0, 20))
    sent_errors = draw(st.none() | st.integers(0, 30))
    times = (
        draw(st.integers(1, 20)),
        errors + gradients,
        gradients,
        draw(st.integers(0, 30)),
        sent_errors,
    )
    return StageCosts(*times, rows=draw(st.integers(1, 4)))


@st.composite
def shapes(draw: st.DrawFn, name: str) -> Shape:
    """Draw unequal stages on any machine."""
    devices, count = draw(st.integers(1, 5)), draw(st.integers(1, 9))
    chunks = 1
    if pipeline_kind(name).chunks > 1:
        chunks = draw(st.integers(1, 3))
        count = max(count - count % devices, devices)
    engines = draw(st.sampled_from(Engines))
    transports = [
        each
        for each in Transport
        if engines is not Engines.SHARED or each is not Transport.STREAMED
    ]
    machine = Machine(
        engines,
        draw(st.sampled_from(transports)),
        draw(st.sampled_from(Backward)),
        draw(st.integers(0, 5)),
    )
    stages = devices * chunks
    return Shape(
        devices,
        count,
        draw(st.lists(stage_costs(), min_size=stages, max_size=stages)),
        machine,
        chunks,
    )


def inputs_of(step: Step, stages: int) -> Iterable[tuple[Step, bool]]:
    """Yield what a step needs, and whether that comes as a message from another stage."""
    if step.kind is Kind.FORWARD and step.stage:
        yield step._replace(stage=step.stage - 1), True
    if step.kind is Kind.BACKWARD:
        yield step._replace(kind=Kind.FORWARD), False
        if step.stage + 1 < stages:
            yield step._replace(stage=step.stage + 1), True
    if step.kind is Kind.GRADIENT:
        yield step._replace(kind=Kind.BACKWARD), False


@given(st.sampled_from(NAMES), st.data())
def test_what_is_true_of_any_timeline(name: str, data: st.DataObject) -> None:
    shape = data.draw(shapes(name))
    machine, stages = shape.machine, len(shape.costs)
    schedule, _ = schedule_of(pipeline_kind(name), shape)
    found = run_timeline(schedule, shape.costs, machine).timed
    by_step = {each.step: each for each in found}
    kinds = [Kind.FORWARD, Kind.BACKWARD] + [Kind.GRADIENT] * (machine.backward is Backward.SPLIT)
    wanted = {
        Step(*each) for each in itertools.product(kinds, range(shape.micro_batches), range(stages))
    }
    assert len(found) == len(by_step) and by_step.keys() == wanted, "each action once"
    for each in found:
        check_inputs(each, by_step, shape)
    check_engines(found, shape)
    assert found == run_timeline(schedule, shape.costs, machine).timed, "deterministic"
    if (
        machine.backward is Backward.FUSED
        and machine.transport is Transport.STORED
        and shape.chunks == 1
    ):
        assert max(each.end_ps for each in found) >= least_time_ps(shape)


def check_inputs(each: Timed, by_step: dict[Step, Timed], shape: Shape) -> None:
    """No action starts before its inputs are there."""
    for step, travels in inputs_of(each.step, len(shape.costs)):
        source = by_step[step]
        transfer_ps = message_ps(step, shape) if travels and source.device != each.device else 0
        if shape.machine.transport is Transport.STREAMED:
            side_by_side = each.step.kind is Kind.GRADIENT
            assert each.start_ps >= (
                source.start_ps if side_by_side or travels else source.end_ps
            ) + bool(transfer_ps)
            assert each.end_ps >= source.end_ps
            continue
        assert each.start_ps >= source.end_ps
        if travels and source.device != each.device:
            sent = source.end_ps if shape.machine.transport is Transport.STORED else source.start_ps
            assert each.start_ps >= sent + transfer_ps


def message_ps(step: Step, shape: Shape) -> int:
    """Time of the message of a step, from the device to the next."""
    if step.kind is Kind.FORWARD:
        return shape.costs[step.stage].transfer_ps + shape.machine.latency_ps
    of_link = shape.costs[step.stage - 1]
    return (
        of_link.transfer_ps if of_link.errors_ps is None else of_link.errors_ps
    ) + shape.machine.latency_ps


def check_engines(found: list[Timed], shape: Shape) -> None:
    """No two actions at once on what does one at a time; a pool does no more work than it has time
    for.
    """
    lanes = collections.defaultdict(list)
    for each in found:
        lanes[
            each.device, None if shape.machine.engines is Engines.TURNS else each.step.kind
        ].append(each)
    for lane in lanes.values():
        for before, after in itertools.pairwise(lane):
            assert after.start_ps >= before.end_ps
    work = [
        sum(each.work_ps for each in shape.costs[d :: shape.devices]) for d in range(shape.devices)
    ]
    for device in range(shape.devices):
        here = [each for each in found if each.device == device]
        span = max(each.end_ps for each in here) - min(each.start_ps for each in here)
        assert span >= work[device] * shape.micro_batches


@given(
    st.sampled_from([name for name in NAMES if name != "interleaved"]),
    st.integers(1, 6),
    st.integers(1, 12),
)
def test_schedules_pass_the_dry_run(name: str, devices: int, count: int) -> None:
    schedule, _ = schedule_of(
        pipeline_kind(name), shape_of(name, devices, count, StageCosts(2, 4, 2, 1))
    )
    dry_run(schedule)
    assert to_text(parse(to_text(schedule))) == to_text(schedule)


def test_interleaved_can_be_read_again() -> None:
    schedule, _ = schedule_of(
        pipeline_kind("interleaved"), shape_of("interleaved", 2, 4, StageCosts(1, 2), chunks=3)
    )
    text = to_text(schedule)
    assert " 0F1c2v0 " in text and " 1W0c1 " in text
    again = parse(text)
    assert to_text(again) == text
    dry_run(again)


def swapped(text: str, first: str, second: str) -> Schedule:
    """Return the schedule with two words of a text swapped."""
    words = {first: second, second: first}
    return parse(
        "\n".join(
            " ".join(words.get(word, word) for word in line.split()) for line in text.splitlines()
        )
    )


def test_by_hand() -> None:
    result = time_pipeline(parse(BY_HAND), COSTS, Machine())
    times = [
        (str(e.step.kind.value) + str(e.step.micro_batch), e.device, e.start_ps, e.end_ps)
        for e in result.timed
    ]
    assert times == [
        ("F0", 0, 0, 2),
        ("F1", 0, 2, 4),
        ("F0", 1, 3, 5),
        ("B0", 1, 5, 8),
        ("F1", 1, 8, 10),
        ("B0", 0, 9, 12),
        ("B1", 1, 10, 13),
        ("B1", 0, 14, 17),
    ]
    path = [
        (str(each.step.kind.value) + str(each.step.micro_batch), each.device)
        for each in result.critical_path
    ]
    assert path == [("F0", 0), ("F0", 1), ("B0", 1), ("F1", 1), ("B1", 1), ("B1", 0)]


@pytest.mark.parametrize("engines", Engines)
def test_swapped_actions_deadlock(engines: Engines) -> None:
    with pytest.raises(InputError) as error:
        run_timeline(swapped(BY_HAND, "1F0v0", "1B0v0"), COSTS, Machine(engines))
    assert "schedule own: deadlock: " in str(error.value)
    assert "device 1 waits at " in str(error.value) and "\n" not in str(error.value)


STASHING = """schedule stashing, 1 device
micro-batches 0:1 | 1:2 | 2:3
0F0v0 0F1v0 0B0v0 0W0 0U1 0F2v1 0B1v0 0W1 0U2 0B2v1 0W2 0U3
"""


def test_weight_copies_of_a_schedule_that_stashes() -> None:
    """B1 still needs version 0 beside version 1, then B2 version 1 beside version 2; never
    three.
    """
    schedule = parse(STASHING)
    dry_run(schedule)
    result = time_pipeline(schedule, COSTS[:1], Machine())
    assert (result.makespan_ps, result.bubble, result.weight_copies) == (15, 0, (2,))


REFUSED = {
    "twice": (BY_HAND.replace("1F1v0", "1F0v0"), "device 1: F0v0: is done twice"),
    "left out": (BY_HAND.replace(" 0W1", ""), "device 0: never does W1"),
    "a span": (BY_HAND.replace("0F0v0", "0F0[0:1]v0"), "must be a whole micro-batch"),
    "a chunk too many": (BY_HAND.replace("0F0v0", "0F0c1v0"), "there are 1 chunks"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_schedules_that_are_refused(name: str) -> None:
    text, expected_text = REFUSED[name]
    with pytest.raises(InputError) as error:
        run_timeline(parse(text), COSTS, Machine())
    assert expected_text in str(error.value)


def test_costs_that_are_refused() -> None:
    with pytest.raises(InputError, match="`forward_ps` = -1: must not be negative"):
        StageCosts(-1, 2)
    with pytest.raises(InputError, match="is part of `backward_ps` = 2"):
        StageCosts(1, 2, 3)
    with pytest.raises(InputError, match="costs of 3 stages for 2 devices"):
        run_timeline(parse(BY_HAND), [StageCosts(1, 2)] * 3, Machine())
    with pytest.raises(InputError, match="a split backward needs"):
        run_timeline(parse(BY_HAND), COSTS, Machine(backward=Backward.SPLIT))
