"""A schedule's actions as boards take them: whom each waits for, and what it costs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import NamedTuple

from ..common import InputError, plural
from ..schedule import PASSES, Action, Backward, Engines, Kind, Machine, MicroBatch, Schedule, StageCosts, Transport
from .board import StageLoads


class Step(NamedTuple):
    """F, B or W of a micro-batch on a stage."""

    kind: Kind
    micro_batch: int
    stage: int


class Task(NamedTuple):
    """A step of a device's program with all samples of a micro-batch, and its action in the schedule.

    `work_ps` is its time when nothing runs beside it. `source` is the step of the same stage whose result it needs,
    `message` that of a neighbouring stage whose message it needs. `before` are steps of the same device that must be
    done for other reasons.
    """

    action: Action
    step: Step
    device: int
    micro_batch: MicroBatch
    work_ps: int
    source: Step | None
    message: Step | None
    before: tuple[Step, ...] = ()

    @property
    def version(self) -> int:
        """The version of the weights that it uses."""
        return self.action.version or 0


class DeviceTasks(NamedTuple):
    """A device's tasks in order, and of those that end with gradients the version that these are for."""

    tasks: list[Task]
    makes: dict[Step, int]


def tasks_of(schedule: Schedule, loads: StageLoads) -> list[DeviceTasks]:
    """Return each device's tasks; W is part of B where the machine fuses both.

    Raises:
        InputError: an action is done twice or left out, or the costs do not fit the schedule.
    """
    devices = schedule.devices
    if not loads.count or loads.count % devices:
        raise InputError(
            f"schedule {schedule.name}: costs of {plural(loads.count, 'stage')} for"
            f" {plural(devices, 'device')}; must be one for each"
            " device, or for each chunk of each device"
        )
    programs = schedule.programs(range(devices))
    return [_device_tasks(schedule, device, programs[device], loads) for device in range(devices)]


def _device_tasks(schedule: Schedule, device: int, program: Iterable[Action], loads: StageLoads) -> DeviceTasks:
    where, machine = f"schedule {schedule.name}: device {device}", loads.machine
    chunks = loads.count // schedule.devices
    fold = dataclasses.replace(schedule.fold, chunks=chunks)
    micro_batches = schedule.micro_batches
    done = {(kind, chunk): bytearray(len(micro_batches)) for kind in PASSES for chunk in range(chunks)}
    tasks: list[Task] = []
    waits = _Waits(where, machine)
    for action in program:
        kind, index, chunk = action.kind, action.index, action.chunk
        if kind is Kind.UPDATE:
            waits.update()
            continue
        if action.span is not None:
            raise InputError(f"{where}: {action}: must be a whole micro-batch, not a span of it")
        of_chunk = done.get((kind, chunk))
        if of_chunk is None or index >= len(of_chunk) or of_chunk[index]:
            why = f"there are {chunks} chunks" if chunk >= chunks else "is done twice"
            raise InputError(f"{where}: {action}: {why}")
        of_chunk[index] = 1
        step = Step(kind, index, fold.stage(device, chunk))
        before = waits.before(action, step)
        if kind is Kind.GRADIENT and machine.backward is Backward.FUSED:
            continue
        micro_batch = micro_batches[index]
        work = work_ps(loads.costs(step.stage, micro_batch.samples), kind, machine)
        inputs = _source(step), _message(step, loads.count), before
        tasks.append(Task(action, step, device, micro_batch, work, *inputs))
    left = [(marks.find(0), chunk, kind) for (kind, chunk), marks in done.items() if 0 in marks]
    if left:
        index, chunk, kind = min(left, key=lambda each: (*each[:2], PASSES.index(each[2])))
        raise InputError(f"{where}: never does {Action(kind, index, chunk=chunk)}")
    return DeviceTasks(tasks, waits.makes)


class _Waits:
    """What actions of a device wait for beside their inputs: room for features, and versions of the weights.

    F waits for the room of the features that are freed ahead of it, unless rows are streamed: room is then not kept by
    whole micro-batches. F and B wait for the gradients in the version that they name, `makes` of which says which they
    are; the update takes no time.
    """

    def __init__(self, where: str, machine: Machine) -> None:
        self._where = where
        self._last = machine.frees_features
        self._needs_room = machine.engines is not Engines.TURNS and machine.transport is not Transport.STREAMED
        self._freed: list[Step] = []
        self._gradients: list[Step] = []
        self.makes: dict[Step, int] = {}
        self._made: list[tuple[Step, ...]] = [()]
        """For each version the steps behind it that those behind the one before do not include."""
        self._waited = {Kind.FORWARD: 0, Kind.BACKWARD: 0}
        """The newest version that an earlier F or B waited for."""

    def update(self) -> None:
        """Make a version of the gradients so far."""
        self.makes |= dict.fromkeys(self._gradients, len(self._made))
        self._made.append(tuple(self._gradients))
        self._gradients.clear()

    def before(self, action: Action, step: Step) -> tuple[Step, ...]:
        """Return the steps of the same device that an action waits for.

        Raises:
            InputError: it names a version that no update ahead of it makes.
        """
        if action.kind is Kind.GRADIENT:
            self._gradients.append(Step(self._last, step.micro_batch, step.stage))
        before: list[Step] = []
        if action.kind is Kind.FORWARD and self._needs_room:
            before, self._freed = self._freed, []
        elif action.kind is self._last:
            self._freed.append(step)
        if action.kind in self._waited and action.version is not None:
            if action.version >= len(self._made):
                raise InputError(
                    f"{self._where}: {action}: needs version {action.version} of the weights; the newest is"
                    f" {len(self._made) - 1}"
                )
            for version in range(self._waited[action.kind] + 1, action.version + 1):
                before += self._made[version]
            self._waited[action.kind] = max(self._waited[action.kind], action.version)
        return tuple(before)


def _source(step: Step) -> Step | None:
    """Return the step of the same stage whose result a step needs."""
    before = step.kind.before
    return None if before is None else Step(before, step.micro_batch, step.stage)


def _message(step: Step, stages: int) -> Step | None:
    """Return the step of a neighbouring stage that sends what a step needs."""
    if step.kind is Kind.FORWARD and step.stage > 0:
        return Step(step.kind, step.micro_batch, step.stage - 1)
    if step.kind is Kind.BACKWARD and step.stage + 1 < stages:
        return Step(step.kind, step.micro_batch, step.stage + 1)
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
