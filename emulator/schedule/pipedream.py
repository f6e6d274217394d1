"""1F1B without a flush: `pipedream` (Narayanan et al., SOSP 2019, sections 3.2 and 3.3) and `2bw`
(ICML 2021).

Samples go through in units. A device does F of some units, its warm-up, and then B of one and F of
another by turns; unlike the kinds that drain, it continues with F of later mini-batches while B of
earlier ones is still to come. B and W use the version of their F, which is stashed until then.

Under `pipedream` a unit is a mini-batch: device i of N, from 1 on, has N-i+1 of them in flight and
updates after each. F uses the newest weights; so device i keeps N-i+1 versions, and mini-batch n,
from 0 on, uses version max(0, n - (N-i)). Micro-batches of a mini-batch follow on one another: all
their F, then all their B.

Under `2bw` a unit is a micro-batch, gradients of a mini-batch's micro-batches are summed, and
W(t+1) = W(t) - rate * gradient(W(t-1)) on every device: a mini-batch uses the version before the
newest one that its first sample could have seen. So two versions are enough. With M micro-batches
in a mini-batch, version t-1 is there for F of mini-batch t if at most M+1 micro-batches are in
flight: of M >= N-1, no device of N waits; with fewer, devices have M+1 in flight.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterator, Sequence

from .action import Action, Kind, MicroBatch, Schedule, cut_samples
from .bapipe import single
from .kind import PipelineKind
from .shape import ClosedForm, EpochShape, Shape, one_by_one

Unit = Sequence[MicroBatch]
"""Micro-batches of one mini-batch that follow on one another."""


def unflushed(
    name: str,
    epoch: EpochShape,
    units: Sequence[Unit],
    forwards: Sequence[int],
    version_of: Callable[[int, int], int],
) -> Schedule:
    """Return the schedule in which each device has some units in flight, and updates after each
    mini-batch.

    Args:
        name: the schedule's name.
        epoch: the epoch.
        units: all its micro-batches, in order.
        forwards: for each device, the number of units whose F it does first.
        version_of: the version of the weights that a mini-batch uses, by its number and the
            device's forwards.
    """

    def passes(kind: Kind, unit: Unit, first: int) -> Iterator[Action]:
        return (
            Action(kind, micro_batch.index, version_of(micro_batch.step, first))
            for micro_batch in unit
        )

    def program(first: int) -> Iterator[Action]:
        for unit in units[:first]:
            yield from passes(Kind.FORWARD, unit, first)
        for place, unit in enumerate(units):
            backwards, gradients = (
                passes(kind, unit, first) for kind in (Kind.BACKWARD, Kind.GRADIENT)
            )
            for backward, gradient in zip(backwards, gradients, strict=True):
                yield backward
                yield gradient
            step = unit[0].step
            # Under 2bw a mini-batch has several units: U follows the last of them.
            if place + 1 == len(units) or units[place + 1][0].step > step:
                yield Action(Kind.UPDATE, step + 1)
            for ahead in units[place + first : place + first + 1]:
                yield from passes(Kind.FORWARD, ahead, first)

    def programs(devices: Collection[int]) -> dict[int, Iterator[Action]]:
        return {device: program(forwards[device]) for device in devices}

    micro_batches = [micro_batch for unit in units for micro_batch in unit]
    return Schedule(name, epoch.devices, micro_batches, programs)


def pipedream(epoch: EpochShape) -> Schedule:
    """Return the schedule in which each device stashes as many versions as it has mini-batches in
    flight.
    """
    micro_batches = cut_samples(epoch.samples, epoch.batch, epoch.micro_batch)
    steps = [
        list(group)
        for _, group in itertools.groupby(micro_batches, key=lambda micro_batch: micro_batch.step)
    ]
    return unflushed("pipedream", epoch, steps, single(epoch.devices), _newest)


def _newest(step: int, in_flight: int) -> int:
    """Return the version after the last update before F of a mini-batch."""
    # F of mini-batch n comes behind U of n - in_flight, which has made version n - in_flight + 1.
    return max(0, step - in_flight + 1)


def pipedream_2bw(epoch: EpochShape) -> Schedule:
    """Return the schedule in which each device keeps two versions, and mini-batch t uses version
    t-1.
    """
    units = [
        [micro_batch] for micro_batch in cut_samples(epoch.samples, epoch.batch, epoch.micro_batch)
    ]
    # M + 1: with more in flight, F would need a version that is not made yet.
    most = -(-epoch.batch // epoch.micro_batch) + 1
    forwards = [min(ahead, most) for ahead in single(epoch.devices)]
    return unflushed("2bw", epoch, units, forwards, _one_late)


def _one_late(step: int, _in_flight: int) -> int:
    """Return the version that a mini-batch uses; the first has none before its own."""
    return max(0, step - 1)


def unflushed_in_order(order: Schedule, batch: int) -> Schedule:
    """Return an order of one mini-batch as 2BW trains it: mini-batches have `batch` micro-batches
    each, t uses version t-1, and U follows the last W of its own.

    Versions are there in time where no device keeps more than `batch` + 1 micro-batches.
    """
    samples = sum(micro_batch.samples for micro_batch in order.micro_batches)
    micro_batches = cut_samples(samples, batch, 1)
    steps = [micro_batch.step for micro_batch in micro_batches]

    def program(actions: Iterator[Action]) -> Iterator[Action]:
        left = collections.Counter(steps)
        for action in actions:
            if action.kind is Kind.UPDATE:
                continue
            step = steps[action.index]
            late = None if action.kind is Kind.GRADIENT else _one_late(step, 0)
            yield dataclasses.replace(action, version=late)
            left[step] -= action.kind is Kind.GRADIENT
            if not left[step]:
                yield Action(Kind.UPDATE, step + 1)

    def programs(devices: Collection[int]) -> dict[int, Iterator[Action]]:
        return {device: program(own) for device, own in order.programs(devices).items()}

    return Schedule(order.name, order.devices, micro_batches, programs)


def unflushed_form(shape: Shape) -> ClosedForm | None:
    """Return the form of `1f1b-sno`, whose order this is but for updates, which take no time here.

    M micro-batches of several mini-batches take as long as those of one.
    """
    return one_by_one(dataclasses.replace(shape, warm_ups=single(shape.devices)))


def _not_divided(_: Shape) -> int:
    """Return that a mini-batch is one micro-batch."""
    return 1


def _fewest(shape: Shape) -> int:
    """Return the fewest micro-batches of a mini-batch that the paper of 2BW allows."""
    return shape.devices


PIPEDREAM = PipelineKind(
    "pipedream",
    pipedream,
    "one forward, one backward, no flush, stashed weights",
    drains=False,
    closed_form=unflushed_form,
    mini_batch=_not_divided,
)
PIPEDREAM_2BW = PipelineKind(
    "2bw",
    pipedream_2bw,
    "one forward, one backward, no flush, weights late by one update",
    drains=False,
    closed_form=unflushed_form,
    mini_batch=_fewest,
    equal_stages=True,
)
