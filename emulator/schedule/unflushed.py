"""1F1B without a flush: the generator behind `pipedream` and `2bw`.

Samples go through in units. A device does F of some units, its warm-up, and then B of one and F of another by turns;
unlike the kinds that drain, it continues with F of later mini-batches while B of earlier ones is still to come. B and W
use the version of their F, which is stashed until then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from .action import Action, Kind, MicroBatch, Schedule
from .kind import EpochShape

Unit = Sequence[MicroBatch]
"""Micro-batches of one mini-batch that follow on one another."""


def unflushed(
    name: str,
    epoch: EpochShape,
    units: Sequence[Unit],
    forwards: Sequence[int],
    version_of: Callable[[int, int], int],
) -> Schedule:
    """Return the schedule in which each device has some units in flight, and updates after each mini-batch.

    Args:
        name: the schedule's name.
        epoch: the epoch.
        units: all its micro-batches, in order.
        forwards: for each device, the number of units whose F it does first.
        version_of: the version of the weights that a mini-batch uses, by its number and the device's forwards.
    """

    def passes(kind: Kind, unit: Unit, first: int) -> Iterator[Action]:
        return (Action(kind, each.index, version_of(each.step, first)) for each in unit)

    def program(first: int) -> Iterator[Action]:
        for unit in units[:first]:
            yield from passes(Kind.FORWARD, unit, first)
        for place, unit in enumerate(units):
            backwards, gradients = (passes(kind, unit, first) for kind in (Kind.BACKWARD, Kind.GRADIENT))
            for backward, gradient in zip(backwards, gradients, strict=True):
                yield backward
                yield gradient
            step = unit[0].step
            if place + 1 == len(units) or units[place + 1][0].step > step:
                yield Action(Kind.UPDATE, step + 1)
            for ahead in units[place + first : place + first + 1]:
                yield from passes(Kind.FORWARD, ahead, first)

    def programs(devices: Collection[int]) -> dict[int, Iterator[Action]]:
        return {device: program(forwards[device]) for device in devices}

    micro_batches = [micro_batch for unit in units for micro_batch in unit]
    return Schedule(name, epoch.devices, micro_batches, programs)
