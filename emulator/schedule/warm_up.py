"""Warm-up forwards, then B and F by turns: the generator behind all kinds of 1F1B.

The number of warm-up forwards w of a stage is also the most micro-batches whose features it keeps. As under `sync`, the
pipeline drains at each update, and every sample of a mini-batch sees the weights from the end of the one before.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence

from .action import Action, Kind, Schedule, cut_samples
from .kind import EpochShape


def single(devices: int) -> tuple[int, ...]:
    """Return for each device the fewest warm-up forwards that fill the pipeline: N-i+1 for device i of N, from 1 on."""
    return tuple(range(devices, 0, -1))


def doubled(devices: int) -> tuple[int, ...]:
    """Return twice as many, 2(N-i+1): room for messages under way, or for F and B side by side."""
    return tuple(2 * forwards for forwards in single(devices))


def warm_up(name: str, epoch: EpochShape, forwards: Sequence[int], late: Sequence[int] | None = None) -> Schedule:
    """Return the schedule in which each device does some F first, then B and F by turns, then the other B.

    Args:
        name: the schedule's name.
        epoch: the epoch.
        forwards: for each device, its number of warm-up F, at least 1; no more are done than a mini-batch has.
        late: for each device, by how many B its W are late; without it, W follows its B.
    """
    micro_batches = cut_samples(epoch.samples, epoch.batch, epoch.micro_batch)

    def program(first: int, behind: int) -> Iterator[Action]:
        for step, group in itertools.groupby(micro_batches, key=lambda micro_batch: micro_batch.step):
            numbers = [micro_batch.index for micro_batch in group]
            yield from (Action(Kind.FORWARD, number, step) for number in numbers[:first])
            for place, number in enumerate(numbers):
                yield Action(Kind.BACKWARD, number, step)
                if place >= behind:
                    yield Action(Kind.GRADIENT, numbers[place - behind])
                yield from (Action(Kind.FORWARD, ahead, step) for ahead in numbers[place + first : place + first + 1])
            yield from (Action(Kind.GRADIENT, number) for number in numbers[max(len(numbers) - behind, 0) :])
            yield Action(Kind.UPDATE, step + 1)

    def programs(devices: Collection[int]) -> dict[int, Iterator[Action]]:
        return {device: program(forwards[device], late[device] if late else 0) for device in devices}

    return Schedule(name, epoch.devices, micro_batches, programs)
