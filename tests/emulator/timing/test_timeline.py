"""Timelines by hand, where micro-batches, links and paces differ, and boards go on from where they
are.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from emuchain.emulator.schedule import (
    Backward,
    Engines,
    Kind,
    Machine,
    Schedule,
    StageCosts,
    Transport,
    parse,
)
from emuchain.emulator.timing import ActionBoard, Message, StageLoads, Wire, timeline_of

TWO_SIZES = """schedule own, 2 devices
micro-batches 0:4 4:6
0F0v0 0F1v0 0B0v0 0W0 0B1v0 0W1 0U1
1F0v0 1F1v0 1B0v0 1W0 1B1v0 1W1 1U1
"""
ONE = """schedule own, 3 devices
micro-batches 0:1
0F0v0 0B0v0 0W0 0U1
1F0v0 1B0v0 1W0 1U1
2F0v0 2B0v0 2W0 2U1
"""
Ended = dict[str, tuple[int, int]]


def loads_of(machine: Machine, costs: Sequence[StageCosts]) -> StageLoads:
    """Return stages whose costs are those of a sample; a message takes 1 ps for each."""

    def of_samples(stage: int, samples: int) -> StageCosts:
        forward, backward, pg = (
            costs[stage].forward_ps,
            costs[stage].backward_ps,
            costs[stage].pg_ps,
        )
        return StageCosts(
            forward * samples, backward * samples, None if pg is None else pg * samples
        )

    def message(kind: Kind, stage: int, samples: int) -> Message:
        return Message(samples)

    return StageLoads(len(costs), machine, of_samples, message)


def boards_of(machine: Machine, latencies_ps: Sequence[int]) -> list[ActionBoard]:
    """Return a chain of boards with links of these latencies."""
    wires: list[dict[int, Wire]] = [{} for _ in range(len(latencies_ps) + 1)]
    for link, latency_ps in enumerate(latencies_ps):
        wires[link][link + 1], wires[link + 1][link] = (
            Wire("right", latency_ps),
            Wire("left", latency_ps),
        )
    return [ActionBoard(number, machine, of_board) for number, of_board in enumerate(wires)]


def ran(
    schedule: Schedule, loads: StageLoads, boards: Sequence[ActionBoard], passed: int = 0
) -> Ended:
    """Return start and end of each action in ps."""
    timeline = timeline_of(schedule, loads, boards, passed)
    return {
        f"{t.device}{t.step.kind.value}{t.step.micro_batch}": (t.start_ps, t.end_ps)
        for t in timeline.timed
    }


STAGES = StageCosts(2, 3), StageCosts(2, 3)


def test_a_pool_takes_micro_batches_of_two_sizes() -> None:
    """F1 of 4 ps and B0 of 12 ps begin together on board 1 at 25 ps, and end together at 41 ps."""
    machine = Machine(Engines.SHARED, Transport.STORED)
    assert ran(parse(TWO_SIZES), loads_of(machine, STAGES), boards_of(machine, [5])) == {
        "0F0": (0, 8),
        "0F1": (8, 12),
        "1F0": (17, 25),
        "1F1": (25, 41),
        "1B0": (25, 41),
        "1B1": (41, 47),
        "0B0": (50, 62),
        "0B1": (62, 68),
    }


@pytest.mark.parametrize("engines", [Engines.SHARED, Engines.TURNS])
def test_a_slow_board(engines: Engines) -> None:
    """ActionBoard 1 takes twice as long from sample 4 on: F1 8 ps, B1 12 ps, in turns or in the
    pool with B0.
    """
    machine = Machine(engines, Transport.STORED)
    boards = boards_of(machine, [5])
    boards[1].pace = lambda start_ps, sample, work_ps: 2 * work_ps if sample >= 4 else work_ps
    together = engines is Engines.SHARED
    assert ran(parse(TWO_SIZES), loads_of(machine, STAGES), boards) == {
        "0F0": (0, 8),
        "0F1": (8, 12),
        "1F0": (17, 25),
        "1F1": (25, 45 if together else 33),
        "1B0": (25 if together else 33, 45),
        "1B1": (45, 57),
        "0B0": (54, 66),
        "0B1": (66, 72),
    }


@pytest.mark.parametrize("engines", Engines)
def test_samples_are_counted_from_the_start_of_training(engines: Engines) -> None:
    """The first sample of a timeline is the fourth: all is slow."""
    machine = Machine(engines, Transport.HIDDEN)
    slow, fast = boards_of(machine, []), boards_of(machine, [])
    slow[0].pace = lambda start_ps, sample, work_ps: 10 * work_ps if sample >= 4 else work_ps
    schedule, loads = (
        parse("\n".join(ONE.replace("3 devices", "1 device").splitlines()[:3])),
        loads_of(machine, [STAGES[0]]),
    )
    ends_ps = [
        max(end for _, end in ran(schedule, loads, boards, 4).values()) for boards in (slow, fast)
    ]
    assert ends_ps == [10 * ends_ps[1], 10 if engines is Engines.SPLIT else 5]


@pytest.mark.parametrize("late_ps", [0, 1000])
@pytest.mark.parametrize(
    ("engines", "transport", "end_ps"),
    [
        (Engines.TURNS, Transport.STORED, 3 * (2 + 3) + 4 + 2 * (7 + 100)),
        (Engines.SHARED, Transport.STORED, 3 * (2 + 3) + 4 + 2 * (7 + 100)),
        (Engines.SPLIT, Transport.STORED, 6 * 5 + 4 + 2 * (7 + 100)),
        (Engines.TURNS, Transport.HIDDEN, 2 + 3 + 4 + 2 * (7 + 100)),
        (Engines.SHARED, Transport.HIDDEN, 2 + 3 + 4 + 2 * (7 + 100)),
        (Engines.SPLIT, Transport.HIDDEN, 2 * 5 + 4 + 2 * (7 + 100)),
    ],
)
def test_each_link_has_its_latency(
    engines: Engines, transport: Transport, end_ps: int, late_ps: int
) -> None:
    """A sample goes all the way and back over links of 7 and 100 ps; what is hidden leaves as its
    action begins.
    """
    machine = Machine(engines, transport)
    boards = boards_of(machine, [7, 100])
    boards[1].wires[2].pace = lambda start_ps, sample, message: (message.takes_ps, late_ps)
    found = ran(parse(ONE), loads_of(machine, [StageCosts(2, 3)] * 3), boards)
    assert max(end for _, end in found.values()) == end_ps + late_ps


def test_boards_go_on_from_where_they_are() -> None:
    """ActionBoard 1 computes gradients until 22 ps, board 0 until 21 ps, when it begins the next
    mini-batch.
    """
    machine = Machine(Engines.SHARED, Transport.STORED, Backward.SPLIT)
    schedule, boards = (
        parse("\n".join(ONE.replace("3 devices", "2 devices").splitlines()[:4])),
        boards_of(machine, [5]),
    )
    loads = loads_of(machine, [StageCosts(2, 3, 1), StageCosts(2, 12, 10)])
    assert ran(schedule, loads, boards) == {
        "0F0": (0, 2),
        "1F0": (8, 10),
        "1B0": (10, 12),
        "1W0": (12, 22),
        "0B0": (18, 20),
        "0W0": (20, 21),
    }
    assert ran(schedule, loads, boards, 1) == {
        "0F0": (21, 23),
        "1F0": (29, 31),
        "1B0": (31, 33),
        "1W0": (33, 43),
        "0B0": (39, 41),
        "0W0": (41, 42),
    }
