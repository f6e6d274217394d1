"""What tests of schedules share: chains with any staleness, schedules of them, and a schedule by
hand.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Collection, Iterator, Sequence

from hypothesis import strategies as st

from emuchain.emulator.schedule import (
    Action,
    EpochShape,
    Kind,
    Schedule,
    Staleness,
    cut_samples,
    schedules,
)
from emuchain.emulator.schedule.action import with_recomputed

SMALL = st.integers(1, 12)

VALID = """schedule mine, 2 devices
micro-batches 0:2 2:4 | 4:6
0F0v0 0F1v0 0B0v0 0W0 0B1v0 0W1 0U1 0F2v1 0B2v1 0W2 0U2
1F0v0 1B0v0 1W0 1F1v0 1B1v0 1W1 1U1 1F2v1 1B2v1 1W2 1U2
"""


def sync(devices: int, samples: int, batch: int, micro_batch: int) -> Schedule:
    """The schedule `sync` of a chain."""
    return schedules()["sync"].generate(EpochShape(devices, samples, batch, micro_batch))


def fpdeep(staleness: Sequence[Staleness], samples: int, batch: int, micro_batch: int) -> Schedule:
    """The schedule `fpdeep` of a chain whose devices have this staleness."""
    return schedules()["fpdeep"].generate(
        EpochShape(len(staleness), samples, batch, micro_batch, tuple(staleness))
    )


def staleness_of(late_forward: int, late_backward: int, batch: int) -> Staleness:
    """The staleness of a device whose weights are new this many samples after the mini-batch's last
    one entered.
    """

    def updates(late: int) -> tuple[int, ...]:
        return tuple(max(0, math.ceil((late - sample) / batch)) for sample in range(batch))

    return Staleness(updates(late_forward), updates(late_backward))


@st.composite
def chain_staleness(draw: st.DrawFn, batch: int) -> list[Staleness]:
    """Staleness of a chain: FP comes later nearer to its end, and is less stale there; EB is late
    by 0 or 1 sample.
    """
    late = sorted(
        draw(st.lists(st.integers(0, 3 * batch + 2), min_size=1, max_size=6)), reverse=True
    )
    return [staleness_of(k, min(k, draw(st.integers(0, 1))), batch) for k in late]


@st.composite
def any_schedule(draw: st.DrawFn) -> Schedule:
    """Any schedule `sync` or `fpdeep`."""
    batch, micro_batch, samples = draw(SMALL), draw(SMALL), draw(st.integers(1, 50))
    if draw(st.booleans()):
        return sync(draw(st.integers(1, 7)), samples, batch, micro_batch)
    return fpdeep(draw(chain_staleness(batch)), samples, batch, micro_batch)


def actions_of(schedule: Schedule) -> list[list[Action]]:
    """All actions of all devices."""
    return [list(program) for program in schedule.programs(range(schedule.devices)).values()]


def newest_version(number: int, ahead: int) -> int:
    """The newest version when F of a mini-batch comes, where a device is `ahead` mini-batches ahead
    with F.
    """
    return max(0, number - ahead + 1)


def stashing(epoch: EpochShape, ahead_of: Callable[[int], int]) -> Schedule:
    """PipeDream's weight stashing (Narayanan et al., SOSP 2019): B uses the version of its F.

    A mini-batch is one micro-batch, and an update follows each. A device begins with
    `ahead_of(device)` times F, and then does one B and one F in turn.
    """
    assert epoch.micro_batch >= epoch.batch
    micro_batches = cut_samples(epoch.samples, epoch.batch, epoch.micro_batch)
    count = len(micro_batches)

    def program(ahead: int) -> Iterator[Action]:
        yield from (Action(Kind.FORWARD, number, 0) for number in range(min(ahead, count)))
        for number in range(count):
            yield Action(Kind.BACKWARD, number, newest_version(number, ahead))
            yield Action(Kind.GRADIENT, number)
            yield Action(Kind.UPDATE, number + 1)
            following = number + ahead
            if following < count:
                yield Action(Kind.FORWARD, following, newest_version(following, ahead))

    def programs(devices: Collection[int]) -> dict[int, Iterator[Action]]:
        return {device: program(ahead_of(device)) for device in devices}

    return Schedule("stashing", epoch.devices, micro_batches, programs)


def order_in_v(devices: int, count: int, chance: random.Random) -> str:
    """Return the CSV of an order in which each device does, again and again, one of the actions
    that are possible.
    """
    stages = range(2 * devices)
    done = {(letter, stage): 0 for letter in "FIW" for stage in stages}  # micro-batches
    rows: list[list[str]] = [[] for _ in range(devices)]
    while True:
        before = {
            **{("F", stage): done["F", stage - 1] if stage else count for stage in stages},
            **{
                ("I", stage): min(done["F", stage], done.get(("I", stage + 1), count))
                for stage in stages
            },
            **{("W", stage): done["I", stage] for stage in stages},
        }
        possible = [action for action, number in done.items() if number < before[action]]
        if not possible:
            break
        letter, stage = chance.choice(possible)
        rows[min(stage, 2 * devices - 1 - stage)].append(f"{stage}{letter}{done[letter, stage]}")
        done[letter, stage] += 1
    return "".join(",".join(row) + "\n" for row in rows)


def with_drawn_r(schedule: Schedule, chance: random.Random, share: float = 0.6) -> Schedule:
    """Return a schedule with an R, anywhere between F and B, of a share of its micro-batches."""
    programs = []
    for program in actions_of(schedule):
        drawn = [action for action in program if action.kind is Kind.FORWARD]
        for forward in [action for action in drawn if chance.random() < share]:
            backward = dataclasses.replace(forward, kind=Kind.BACKWARD)
            last = [(a.kind, a.index, a.chunk) for a in program].index(
                (backward.kind, backward.index, backward.chunk)
            )
            again = Action(Kind.RECOMPUTE, forward.index, forward.version, chunk=forward.chunk)
            program.insert(chance.randint(program.index(forward) + 1, last), again)
        programs.append(with_recomputed(program))
    return dataclasses.replace(
        schedule, programs=lambda devices: {device: iter(programs[device]) for device in devices}
    )


def with_drawn_moves(schedule: Schedule, chance: random.Random, share: float = 0.6) -> Schedule:
    """Return a schedule with O and L, anywhere between F and B, of a share of its micro-batches."""
    programs = []
    for program in actions_of(schedule):
        able = [a for a in program if a.kind is Kind.FORWARD and not a.recomputed]
        for forward in [action for action in able if chance.random() < share]:
            offload = Action(Kind.OFFLOAD, forward.index, chunk=forward.chunk)
            load = dataclasses.replace(offload, kind=Kind.LOAD)
            begin = program.index(forward) + 1
            last = [(a.kind, a.index, a.chunk) for a in program].index(
                (Kind.BACKWARD, forward.index, forward.chunk)
            )
            places = sorted(chance.randint(begin, last) for _ in range(2))
            program.insert(places[1], load)
            program.insert(places[0], offload)
        programs.append(program)
    return dataclasses.replace(
        schedule, programs=lambda devices: {device: iter(programs[device]) for device in devices}
    )
