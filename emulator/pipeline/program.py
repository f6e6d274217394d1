"""A schedule's actions as the engine takes them: whom each waits for, and what it costs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from ..common import InputError
from ..schedule import Action, Kind, Schedule
from .costs import StageCosts
from .machine import Backward, Engines, Machine, Transport


class Step(NamedTuple):
    """F, B or W of a micro-batch on a stage."""

    kind: Kind
    micro_batch: int
    stage: int


@dataclasses.dataclass(frozen=True)
class Task:
    """A step of a device's program, with its name in the schedule.

    `work_ps` is its time when nothing runs beside it. `source` is the step of the same stage whose result it needs,
    `message` that of a neighbouring stage whose message it needs. `before` are steps of the same device that must be
    done for other reasons.
    """

    name: str
    step: Step
    device: int
    work_ps: int
    source: Step | None
    message: Step | None
    before: tuple[Step, ...] = ()


def tasks_of(schedule: Schedule, costs: Sequence[StageCosts], machine: Machine) -> list[list[Task]]:
    """Return each device's tasks in order; W is part of B where the machine fuses both.

    Raises:
        InputError: an action is done twice or left out, or the costs do not fit the schedule.
    """
    devices = schedule.devices
    if not costs or len(costs) % devices:
        raise InputError(
            f"schedule {schedule.name}: costs of {len(costs)} stages for {devices} devices; must be one for each"
            " device, or for each chunk of each device"
        )
    chunks = len(costs) // devices
    programs = schedule.programs(range(devices))
    found = []
    for device in range(devices):
        program = [action for action in programs[device] if action.kind is not Kind.UPDATE]
        found.append(_device_tasks(schedule, device, program, chunks, costs, machine))
    return found


def _device_tasks(
    schedule: Schedule,
    device: int,
    program: Sequence[Action],
    chunks: int,
    costs: Sequence[StageCosts],
    machine: Machine,
) -> list[Task]:
    where = f"schedule {schedule.name}: device {device}"
    kinds = (Kind.FORWARD, Kind.BACKWARD, Kind.GRADIENT)
    wanted = {(k, m.index, c) for k in kinds for m in schedule.micro_batches for c in range(chunks)}
    found: list[Task] = []
    freeing: list[Step] = []
    last = Kind.BACKWARD if machine.backward is Backward.FUSED else Kind.GRADIENT
    # Where rows are streamed, room is not kept by whole micro-batches.
    needs_room = machine.engines is not Engines.TURNS and machine.transport is not Transport.STREAMED
    for action in program:
        if action.span is not None:
            raise InputError(f"{where}: {action}: must be a whole micro-batch, not a span of it")
        if (action.kind, action.index, action.chunk) not in wanted:
            why = f"there are {chunks} chunks" if action.chunk >= chunks else "is done twice"
            raise InputError(f"{where}: {action}: {why}")
        wanted.remove((action.kind, action.index, action.chunk))
        if action.kind is Kind.GRADIENT and machine.backward is Backward.FUSED:
            continue
        step = Step(action.kind, action.index, action.chunk * schedule.devices + device)
        before: tuple[Step, ...] = ()
        if action.kind is Kind.FORWARD and needs_room:
            before = tuple(freeing)  # F waits for the room of the features that are freed ahead of it
            freeing.clear()
        elif action.kind is last:
            freeing.append(step)
        work = work_ps(costs[step.stage], step.kind, machine)
        found.append(Task(str(action), step, device, work, _source(step), _message(step, len(costs)), before))
    if wanted:
        kind, index, chunk = min(wanted, key=lambda each: (each[1], each[2], kinds.index(each[0])))
        raise InputError(f"{where}: never does {Action(kind, index, chunk=chunk)}")
    return found


def _source(step: Step) -> Step | None:
    """Return the step of the same stage whose result a step needs."""
    if step.kind is Kind.BACKWARD:
        return step._replace(kind=Kind.FORWARD)
    if step.kind is Kind.GRADIENT:
        return step._replace(kind=Kind.BACKWARD)
    return None


def _message(step: Step, stages: int) -> Step | None:
    """Return the step of a neighbouring stage that sends what a step needs."""
    if step.kind is Kind.FORWARD and step.stage > 0:
        return step._replace(stage=step.stage - 1)
    if step.kind is Kind.BACKWARD and step.stage + 1 < stages:
        return step._replace(stage=step.stage + 1)
    return None


def work_ps(costs: StageCosts, kind: Kind, machine: Machine) -> int:
    """Return the time in ps that F, B or W takes on its own.

    Raises:
        InputError: B is split, and the costs do not say how.
    """
    if machine.engines is Engines.SPLIT:
        return costs.work_ps
    if kind is Kind.FORWARD:
        return costs.forward_ps
    if machine.backward is Backward.FUSED:
        return costs.backward_ps
    return costs.eb_ps if kind is Kind.BACKWARD else costs.known_pg_ps
