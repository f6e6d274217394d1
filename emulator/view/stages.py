"""Stages on boards that take actions as a whole, for users: what limits, a table by stage, and JSON."""

from __future__ import annotations

from typing import Any

from ..common import format_bytes, format_time_ps, percent, plural
from ..plan import ChainPlan, PlannedStages
from ..run import Usage, is_waiting
from ..schedule import Engines, StageCosts, Transport, pipelines
from .answer import Line
from .table import table

_ENGINES = {
    Engines.TURNS: "one action at a time",
    Engines.SHARED: "F and B share a pool",
    Engines.SPLIT: "F, B and W side by side",
}


def stage_lines(plan: ChainPlan, usage: Usage) -> list[Line]:
    """Return what limits a run, its busiest stage or link, or waits where none is busy for half of the time."""
    assert plan.stages is not None
    machine, busy = plan.stages.machine, busy_shares(plan, usage)
    device = max(range(plan.devices), key=lambda index: (busy[index], -index))
    stage = max(range(device, plan.stage_count, plan.devices), key=lambda index: _costs(plan, index).work_ps)
    costs = _costs(plan, stage)
    loads = [
        (
            busy[device],
            f"device {device}, busy for {percent(busy[device])} of the time; stage {stage} takes"
            f" F {format_time_ps(costs.forward_ps)}, B {format_time_ps(costs.backward_ps)} a micro-batch of"
            f" {plan.stages.samples}"
            + (
                "; its memory port is the cause"
                if plan.stages.stage(stage, plan.stages.samples).bound_by_memory
                else ""
            ),
        )
    ]
    if usage.links:
        link = max(usage.links, key=lambda use: use.utilisation)
        share = percent(link.utilisation)
        loads.append((link.utilisation, f"link {link.sender} -> {link.receiver}, busy for {share} of the time"))
    loads.sort(key=lambda load: -load[0])
    texts = [text for _, text in loads]
    if is_waiting(loads[0][0]):
        texts.insert(0, f"waits in the order of {plan.config.schedule.name}: nothing is busy for half of the time")
    first, *others = texts
    lines = [Line(f"limit: {first}"), *(Line(f"then: {text}", optional=place > 0) for place, text in enumerate(others))]
    waits = "messages leave when an action is done" if machine.transport is Transport.STORED else "messages are hidden"
    return [*lines, Line(f"machine: {_ENGINES[machine.engines]}; {waits}", optional=True)]


def order_line(plan: ChainPlan) -> list[Line]:
    """Return a line where a schedule's order costs nothing, because rows are streamed from engines of their own."""
    meant = pipelines().get(plan.config.schedule.name)
    if not plan.times_rows or meant is None:
        return []
    engines = meant.machine.engines.value
    return [
        Line(
            f"order: no effect, since rows stream from split engines; {plan.config.schedule.name} is meant for"
            f" `--engines {engines}`"
        )
    ]


def busy_shares(plan: ChainPlan, usage: Usage) -> list[float]:
    """Return by device the share of the time that its multipliers work, each action having all of them."""
    shares = [0.0] * plan.devices
    for stage in usage.devices:
        shares[plan.fold.device(stage.device)] += sum(stage.busy.values())
    return shares


def stage_rows(plan: ChainPlan) -> None:
    """Print the costs of each stage for a micro-batch."""
    assert plan.stages is not None
    chunks = plan.chunks > 1
    rows = []
    for stage in range(plan.stage_count):
        planned = plan.stages.stage(stage, plan.stages.samples)
        rows.append(
            [
                str(stage),
                *([str(plan.fold.device(stage))] if chunks else []),
                *(format_time_ps(ps) for ps in (planned.costs.forward_ps, planned.costs.backward_ps)),
                str(plan.stages.kept_samples[stage]),
                str(plan.stages.weight_copies[stage]),
                format_bytes(planned.on_chip_bytes),
                format_bytes(planned.off_chip_bytes),
                "yes" if planned.bound_by_memory else "no",
            ]
        )
    columns = ["stage", *(["device"] if chunks else []), "F", "B", "samples kept", "weight copies"]
    table(
        f"Stages: a micro-batch of {plural(plan.stages.samples, 'sample')}",
        [*columns, "on chip", "off chip", "waits for memory"],
        rows,
    )


def stages_as_json(stages: PlannedStages) -> dict[str, Any]:
    """Return machine and stages; times and bytes are those of a micro-batch."""
    planned = [stages.stage(stage, stages.samples) for stage in range(len(stages.mapping.devices))]
    return {
        "engines": stages.machine.engines.value,
        "transport": stages.machine.transport.value,
        "backward": stages.machine.backward.value,
        "chunks": stages.fold.chunks,
        "micro_batch": stages.samples,
        "stages": [
            {
                "forward_ps": stage.costs.forward_ps,
                "backward_ps": stage.costs.backward_ps,
                "pg_ps": stage.costs.pg_ps,
                "feature_bytes": stage.costs.feature_bytes,
                "parameter_bytes": stage.costs.parameter_bytes,
                "kept_samples": kept,
                "weight_copies": copies,
                "on_chip_bytes": stage.on_chip_bytes,
                "off_chip_bytes": stage.off_chip_bytes,
            }
            for stage, kept, copies in zip(planned, stages.kept_samples, stages.weight_copies, strict=True)
        ],
    }


def _costs(plan: ChainPlan, stage: int) -> StageCosts:
    assert plan.stages is not None
    return plan.stages.costs(stage, plan.stages.samples)
