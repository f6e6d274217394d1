"""A kind of pipeline schedule from the one that trains: its order and its summary, with a machine and a closed form."""

from __future__ import annotations

from collections.abc import Callable

from ...schedule import EpochShape, schedules
from ..formulas import one_by_one
from ..machine import Machine
from ..shape import ClosedForm, PipelineKind, Shape


def scheduled(
    name: str,
    machine: Machine,
    closed_form: Callable[[Shape], ClosedForm | None] = one_by_one,
    epoch: Callable[[Shape], EpochShape] = lambda shape: shape.epoch,
) -> PipelineKind:
    """Return the kind of a schedule of that name; `epoch` cuts a shape's micro-batches into mini-batches."""
    kind = schedules()[name]
    own = kind.warm_ups
    return PipelineKind(
        name,
        kind.summary,
        machine,
        lambda shape: kind.generate(epoch(shape)),
        closed_form,
        None if own is None else lambda shape: own(shape.devices),
        interleaves=kind.chunks > 1,
    )
