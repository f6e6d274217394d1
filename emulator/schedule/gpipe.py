"""`gpipe`: all forward, then all backward, then the update (Huang et al., NeurIPS 2019, Fig. 2c).

As under `sync`, every sample of a mini-batch sees the weights from the end of the previous
mini-batch, and gradients are summed in the order of samples; so the weights are those of mini-batch
SGD, bit for bit.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator

from .action import Action, Kind, Schedule, cut_samples
from .kind import PipelineKind
from .shape import (
    ClosedForm,
    Engines,
    EpochShape,
    Shape,
    Transport,
    drained,
    equal_costs,
    is_plain,
    overlapped,
    streamed,
    within_each,
)


def gpipe(epoch: EpochShape) -> Schedule:
    """Return the schedule in which each device does all F of a mini-batch, then all B and W, and
    updates.
    """
    micro_batches = cut_samples(epoch.samples, epoch.batch, epoch.micro_batch)

    def program() -> Iterator[Action]:
        for step, group in itertools.groupby(
            micro_batches, key=lambda micro_batch: micro_batch.step
        ):
            # A list, since F and B both go through it, and `groupby` yields each group once.
            numbers = [micro_batch.index for micro_batch in group]
            yield from (Action(Kind.FORWARD, number, step) for number in numbers)
            # From the first one on, though Fig. 2c draws B from the last one back: gradients are
            # added in the order of samples, as `sync` adds them.
            for number in numbers:
                yield Action(Kind.BACKWARD, number, step)
                yield Action(Kind.GRADIENT, number)
            yield Action(Kind.UPDATE, step + 1)

    def programs(devices: Collection[int]) -> dict[int, Iterator[Action]]:
        return {device: program() for device in devices}

    return Schedule("gpipe", epoch.devices, micro_batches, programs)


def all_forward_first(shape: Shape) -> ClosedForm | None:
    """Return the form for GPipe."""
    costs = equal_costs(shape)
    if costs is not None and shape.machine.transport is Transport.STREAMED:
        return streamed(shape, costs)
    if costs is None or not is_plain(shape.machine) or shape.machine.engines is not Engines.TURNS:
        return None
    valid, exact = within_each(costs)
    if shape.machine.transport is Transport.HIDDEN:
        return ClosedForm(drained(shape, costs), valid, exact)
    return overlapped(shape, costs, valid, exact)


GPIPE = PipelineKind(
    "gpipe",
    gpipe,
    "all forward, then all backward, then the update",
    drains=True,
    repeats=True,
    closed_form=all_forward_first,
)
