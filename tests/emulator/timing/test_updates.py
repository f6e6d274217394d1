"""Several mini-batches: an update takes no time, and F and B wait for the version of the weights
that they name.
"""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.common import InputError
from emuchain.emulator.schedule import (
    Backward,
    Engines,
    EpochShape,
    Kind,
    Machine,
    StageCosts,
    Transport,
    dry_run,
    parse,
    warm_up,
)
from emuchain.emulator.timing import run_timeline, time_pipeline

FLUSHING = """schedule flushing, 2 devices
micro-batches 0:1 1:2 | 2:3 3:4
0F0v0 0F1v0 0B0v0 0W0 0B1v0 0W1 0U1 0F2v1 0F3v1 0B2v1 0W2 0B3v1 0W3 0U2
1F0v0 1B0v0 1W0 1F1v0 1B1v0 1W1 1U1 1F2v1 1B2v1 1W2 1F3v1 1B3v1 1W3 1U2
"""
STASHING = """schedule stashing, 3 devices
micro-batches 0:1 | 1:2 | 2:3 | 3:4 | 4:5
0F0v0 0F1v0 0F2v0 0B0v0 0W0 0U1 0F3v1 0B1v0 0W1 0U2 0F4v2 0B2v0 0W2 0U3 0B3v1 0W3 0U4 0B4v2 0W4 0U5
1F0v0 1F1v0 1B0v0 1W0 1U1 1F2v1 1B1v0 1W1 1U2 1F3v2 1B2v1 1W2 1U3 1F4v3 1B3v2 1W3 1U4 1B4v3 1W4 1U5
2F0v0 2B0v0 2W0 2U1 2F1v1 2B1v1 2W1 2U2 2F2v2 2B2v2 2W2 2U3 2F3v3 2B3v3 2W3 2U4 2F4v4 2B4v4 2W4 2U5
"""
"""PipeDream's: an update after each micro-batch, and B with the version of its F."""
COSTS = [StageCosts(2, 4, 2)] * 3
MACHINES = [
    Machine(engines, transport, backward)
    for engines, transport, backward in itertools.product(Engines, Transport, Backward)
    if (engines, transport) != (Engines.SHARED, Transport.STREAMED)
]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("text", [FLUSHING, STASHING])
def test_versions_are_made_before_they_are_used(text: str, machine: Machine) -> None:
    schedule = parse(text)
    dry_run(schedule)
    devices = schedule.devices
    ends = {
        (each.step, each.device): each
        for each in run_timeline(schedule, COSTS[:devices], machine).timed
    }
    by_name = {(step.kind, step.micro_batch, device): each for (step, device), each in ends.items()}
    last = Kind.BACKWARD if machine.backward is Backward.FUSED else Kind.GRADIENT
    for device, program in schedule.programs(range(devices)).items():
        gradients, made = 0, [0]
        for action in program:
            if action.kind is Kind.GRADIENT:
                gradients = max(gradients, by_name[last, action.index, device].end_ps)
            elif action.kind is Kind.UPDATE:
                made.append(gradients)
            elif action.version is not None:
                assert by_name[action.kind, action.index, device].start_ps >= made[action.version]


def test_without_a_flush_by_hand() -> None:
    """PipeDream's pipeline stays full: the last device works from 4 on without a gap."""
    result = time_pipeline(parse(STASHING), COSTS, Machine())
    assert result.makespan_ps == (5 + 3 - 1) * 6
    assert result.bubble == Fraction(2, 7)
    assert result.weight_copies == (3, 2, 1)
    assert list(result.features) == [3, 2, 1]
    assert [
        (e.start_ps, e.end_ps)
        for e in result.timed
        if e.device == 2 and e.step.kind is Kind.FORWARD
    ] == [
        (4, 6),
        (10, 12),
        (16, 18),
        (22, 24),
        (28, 30),
    ]


def test_engines_of_their_own_wait_for_weights() -> None:
    """Rows would let the next mini-batch's F start at once; it names version 1, so it waits for
    both B before it.
    """
    machine = Machine(Engines.SPLIT, Transport.STREAMED)
    costs = [StageCosts(1, 3, rows=4)] * 2
    waiting = {e.step: e for e in run_timeline(parse(FLUSHING), costs, machine).timed}
    old = parse(
        FLUSHING.replace("F2v1", "F2v0")
        .replace("F3v1", "F3v0")
        .replace("B2v1", "B2v0")
        .replace("B3v1", "B3v0")
    )
    free = {e.step: e for e in run_timeline(old, costs, machine).timed}
    for step, each in waiting.items():
        if step.micro_batch < 2:
            assert each == free[step]
    [first] = [each for step, each in waiting.items() if step == (Kind.FORWARD, 2, 0)]
    [second] = [each for step, each in waiting.items() if step == (Kind.BACKWARD, 1, 0)]
    assert first.start_ps == second.end_ps
    assert free[first.step].start_ps == 8 < first.start_ps


@given(
    st.sampled_from(MACHINES), st.integers(1, 4), st.integers(1, 5), st.integers(1, 3), st.data()
)
def test_mini_batches_that_drain_take_no_longer_than_alone(
    machine: Machine, devices: int, count: int, steps: int, data: st.DataObject
) -> None:
    """A device may begin the next mini-batch while others end the last one; one that is alone may
    not.
    """
    costs = [
        StageCosts(
            data.draw(st.integers(1, 9)),
            data.draw(st.integers(2, 9)),
            1,
            transfer_ps=data.draw(st.integers(0, 9)),
        )
        for _ in range(devices)
    ]
    forwards = range(2 * devices, 0, -2)

    def makespan_ps(steps: int) -> int:
        epoch = EpochShape(devices, steps * count, count, 1)
        return time_pipeline(warm_up("drains", epoch, forwards), costs, machine).makespan_ps

    whole = makespan_ps(steps)
    assert whole <= steps * makespan_ps(1)
    if devices == 1:
        assert whole == steps * makespan_ps(1)


def test_a_version_that_is_not_made() -> None:
    with pytest.raises(
        InputError, match="device 0: F2v2: needs version 2 of the weights; the newest is 1"
    ):
        run_timeline(parse(FLUSHING.replace("0F2v1", "0F2v2")), COSTS[:2], Machine())
