"""What tests of pipelines share: a schedule of equal stages in time."""

from __future__ import annotations

from emuchain.emulator.schedule import (
    ClosedForm,
    Engines,
    Machine,
    Shape,
    StageCosts,
    Transport,
    pipeline_kind,
    warm_ups,
)
from emuchain.emulator.timing import PipelineResult, schedule_of, time_pipeline

SPLIT = Machine(Engines.SPLIT, Transport.HIDDEN)


def shape_of(
    name: str,
    stages: int,
    micro_batches: int,
    costs: StageCosts,
    machine: Machine | None = None,
    warm_up: str | None = None,
    chunks: int = 1,
) -> Shape:
    """Return the shape of equal stages, on the schedule's own machine unless another is given."""
    forwards = None if warm_up is None else warm_ups(warm_up, stages, micro_batches)
    machine = machine or pipeline_kind(name).machine
    return Shape(stages, micro_batches, (costs,) * (stages * chunks), machine, chunks, forwards)


def timed(name: str, shape: Shape) -> tuple[PipelineResult, ClosedForm | None]:
    """Return the timeline of a schedule, and its closed form."""
    schedule, form = schedule_of(pipeline_kind(name), shape)
    return time_pipeline(schedule, shape.costs, shape.machine), form
