"""A board that takes actions as a whole: its tasks, when its engines are free, and when its
messages arrive.

The tasks are a schedule's actions as boards take them: whom each waits for, and what it costs.
Under `turns` all of them share one queue; under `split`, F, B and W have one each, and under
`shared` one pool:

    turns     F0 F1 B0 W0 F2 B1 W1
    split     F0 F1 F2                   three queues, each with engines of its own; F has R, too
                 B0 B1
                    W0 W1
    shared    F0 [F1 B0] [F2 W0 B1]      what runs together ends together

A link carries one message at a time in each direction. The stages of a board (interleaved
schedules) share engines and links. Faults may slow either. Both the timeline of a whole chain and
the clock of a stage, which learns of messages as they come, ask here.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from ...comm import Observer, Served
from ..common import InputError, plural
from ..schedule import (
    MICRO_BATCH_KINDS,
    MOVES,
    PASSES,
    Action,
    Backward,
    Engines,
    Kind,
    Machine,
    MicroBatch,
    Schedule,
    StageCosts,
    Transport,
)


class Ran(NamedTuple):
    """Start and end of an action, in ps."""

    start_ps: int
    end_ps: int


class Message(NamedTuple):
    """What a stage sends to another for a micro-batch: its time on the link in ps, and its bytes if
    these are known.
    """

    takes_ps: int
    size_bytes: int = 0


class Carried(NamedTuple):
    """A message on its link, from `start_ps` to `end_ps`; all of it has come at `arrival_ps`."""

    start_ps: int
    end_ps: int
    arrival_ps: int


@dataclasses.dataclass(frozen=True)
class StageLoads:
    """What the `count` stages of a chain take on a machine.

    `costs` are those of a stage for a number of samples, without transfers. `message` is what a
    stage sends after F, or after B, of a number of samples.
    """

    count: int
    machine: Machine
    costs: Callable[[int, int], StageCosts]
    message: Callable[[Kind, int, int], Message]


Pace = Callable[[int, int, int], int]
"""How long an action takes, from its start in ps, its first sample, and what it would take in ps.
"""


WirePace = Callable[[int, int, Message], tuple[int, int]]
"""How long a message takes and how much later it arrives, in ps, from its start in ps, its first
sample, and itself.
"""


@dataclasses.dataclass
class Wire:
    """One direction of a link, which carries whole messages in order."""

    name: str
    latency_ps: int
    free_ps: int = 0
    observer: Observer | None = None
    pace: WirePace | None = None

    def carry(self, ran: Ran, message: Message, transport: Transport, sample: int) -> Carried:
        """Carry the message of an action, whose first sample this is since the start of
        training.
        """
        begin_ps = max(ran.end_ps if transport is Transport.STORED else ran.start_ps, self.free_ps)
        takes_ps, late_ps = message.takes_ps, 0
        if self.pace is not None:
            takes_ps, late_ps = self.pace(begin_ps, sample, message)
        self.free_ps = begin_ps + takes_ps
        return Carried(
            begin_ps, self.free_ps, max(ran.end_ps, self.free_ps + self.latency_ps + late_ps)
        )

    def has_carried(self, carried: Carried) -> None:
        """Tell the observer of a message that has been carried."""
        _tell(self.observer, self.name, carried.start_ps, carried.end_ps)


class ActionBoard:
    """The engines of a board, and the links on which it sends, by the receiving board."""

    def __init__(self, number: int, machine: Machine, wires: Mapping[int, Wire]) -> None:
        self.number, self.machine, self.wires = number, machine, wires
        self.observer: Observer | None = None
        self.pace: Pace | None = None
        self.room_ps = 0  # when the features are freed whose room the next F needs
        self.updated_ps: dict[int, int] = {}  # when what an update waits for had come, by stage
        self._free_ps: dict[str, int] = {}  # by queue

    @property
    def free_ps(self) -> int:
        """Time in ps at which nothing runs any more."""
        return max(self._free_ps.values(), default=0)

    def run(
        self, kind: Kind, ready_ps: int, work_ps: int, sample: int, end_ps: int | None = None
    ) -> Ran:
        """Run an action, whose first sample this is since the start of training, once its inputs
        are there; its end is given where it waits for others on the way.
        """
        start_ps = self.starts_ps(kind, ready_ps)
        if end_ps is None:
            # What slows a board's engines does not slow its link to the host.
            takes_ps = work_ps if kind in MOVES else self.takes_ps(start_ps, work_ps, sample)
            end_ps = start_ps + takes_ps
        self._free_ps[self._queue(kind)] = end_ps
        return self.has_run(kind, Ran(start_ps, end_ps))

    def starts_ps(self, kind: Kind, ready_ps: int) -> int:
        """Return when an action starts whose inputs are there at `ready_ps`."""
        return max(ready_ps, self._free_ps.get(self._queue(kind), 0))

    def _queue(self, kind: Kind) -> str:
        engine = engine_of(kind, self.machine.engines)
        return "all" if engine is None else engine.value

    def has_run(self, kind: Kind, ran: Ran) -> Ran:
        """Tell the observer of an action that has run, and return it."""
        _tell(self.observer, f"{kind.value} of device {self.number}", *ran)
        return ran

    def takes_ps(self, start_ps: int, work_ps: int, sample: int) -> int:
        """Return how long work takes that begins at a time in ps."""
        return work_ps if self.pace is None else self.pace(start_ps, sample, work_ps)

    def rest_from(self, time_ps: int) -> None:
        """Let nothing begin before a time in ps."""
        self._free_ps["all"] = max(self._free_ps.get("all", 0), time_ps)

    def observe(self, observer: Observer) -> None:
        """Call `observer` for everything that engines and links serve from now on."""
        self.observer = observer
        for wire in self.wires.values():
            wire.observer = observer

    def state(self) -> dict[str, Any]:
        """Return the training state."""
        wires = [wire.free_ps for wire in self.wires.values()]
        updated = [list(entry) for entry in self.updated_ps.items()]
        return {
            "free_ps": dict(self._free_ps),
            "room_ps": self.room_ps,
            "updated_ps": updated,
            "wires": wires,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        self._free_ps, self.room_ps = dict(state["free_ps"]), state["room_ps"]
        self.updated_ps = dict(state.get("updated_ps", ()))
        for wire, free_ps in zip(self.wires.values(), state["wires"], strict=True):
            wire.free_ps = free_ps


MAKES = Kind.FORWARD, Kind.RECOMPUTE, Kind.LOAD
"""Actions that need room for features."""


def engine_of(kind: Kind, engines: Engines) -> Kind | None:
    """Return the kind whose queue an action of a kind stands in, None where all share one: engines
    of their own that do F do R, too. O and L have a link each, of a host's two directions.
    """
    if kind in MOVES:
        return kind
    if engines is Engines.TURNS:
        return None
    is_forward = engines is Engines.SPLIT and kind is Kind.RECOMPUTE
    return Kind.FORWARD if is_forward else kind


def _tell(observer: Observer | None, name: str, begin_ps: int, end_ps: int) -> None:
    if observer is not None:
        observer(Served(name, np.array([[begin_ps]]), np.array([[end_ps]]), end_ps - begin_ps))


class Step(NamedTuple):
    """F, R, B or W of a micro-batch on a stage."""

    kind: Kind
    micro_batch: int
    stage: int


class Task(NamedTuple):
    """A step of a device's program with all samples of a micro-batch, and its action in the
    schedule.

    `work_ps` is its time when nothing runs beside it. `source` is the step of the same stage whose
    result it needs, `message` that of a neighbouring stage whose message it needs. `before` are
    steps of the same device that must be done for other reasons.
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
    """A device's tasks in order, and of those that end with gradients the version that these are
    for.
    """

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


def _device_tasks(
    schedule: Schedule, device: int, program: Iterable[Action], loads: StageLoads
) -> DeviceTasks:
    where, machine = f"schedule {schedule.name}: device {device}", loads.machine
    chunks = loads.count // schedule.devices
    fold = dataclasses.replace(schedule.fold, chunks=chunks)
    micro_batches = schedule.micro_batches
    done = {
        (kind, chunk): bytearray(len(micro_batches))
        for kind in MICRO_BATCH_KINDS
        for chunk in range(chunks)
    }
    tasks: list[Task] = []
    waits = _Waits(where, machine)
    for action in program:
        kind, index, chunk = action.kind, action.index, action.chunk
        if kind is Kind.UPDATE:
            waits.update()
            continue
        if action.span is not None:
            raise InputError(f"{where}: {action}: must be a whole micro-batch, not a span of it")
        if kind is Kind.RECOMPUTE and machine.transport is Transport.STREAMED:
            raise InputError(f"{where}: {action}: needs messages stored or hidden, not streamed")
        if kind in MOVES and (
            machine.transport is Transport.STREAMED or machine.engines is Engines.SHARED
        ):
            raise InputError(
                f"{where}: {action}: needs messages stored or hidden, and engines that take turns or"
                " are split"
            )
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
        again = [kind for kind in (Kind.RECOMPUTE, Kind.LOAD) if done[kind, chunk][index]]
        inputs = _source(step, again), _message(step, loads.count), before
        tasks.append(Task(action, step, device, micro_batch, work, *inputs))
    left = [
        (marks.find(0), chunk, kind)
        for (kind, chunk), marks in done.items()
        if 0 in marks and kind in PASSES
    ]
    if left:
        index, chunk, kind = min(left, key=lambda undone: (*undone[:2], PASSES.index(undone[2])))
        raise InputError(f"{where}: never does {Action(kind, index, chunk=chunk)}")
    return DeviceTasks(tasks, waits.makes)


class _Waits:
    """What actions of a device wait for beside their inputs: room for features, and versions of the
    weights.

    F, R and L wait for the room of the features that are freed ahead of them, unless rows are
    streamed: room is then not kept by whole micro-batches. F, R and B wait for the gradients in the
    version that they name, `makes` of which says which they are; the update takes no time.
    """

    def __init__(self, where: str, machine: Machine) -> None:
        self._where = where
        self._last = machine.frees_features
        self._needs_room = (
            machine.engines is not Engines.TURNS and machine.transport is not Transport.STREAMED
        )
        self._freed: dict[Kind, list[Step]] = {kind: [] for kind in MAKES}
        """Steps behind the last F, R or L that free room."""
        self._gradients: list[Step] = []
        self.makes: dict[Step, int] = {}
        self._made: list[tuple[Step, ...]] = [()]
        """For each version the steps behind it that those behind the one before do not include."""
        self._waited = {Kind.FORWARD: 0, Kind.RECOMPUTE: 0, Kind.BACKWARD: 0}
        """The newest version that an earlier F, R or B waited for."""

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
        if action.kind in self._freed:
            before, self._freed[action.kind] = self._freed[action.kind], []
        elif action.kind is self._last or action.kind is Kind.OFFLOAD:
            for kind, freed in self._freed.items():
                # In one queue, an F comes after all B and W ahead of it.
                if self._needs_room or Kind.OFFLOAD is action.kind or kind is Kind.LOAD:
                    freed.append(step)
        if action.kind in self._waited and action.version is not None:
            if action.version >= len(self._made):
                raise InputError(
                    f"{self._where}: {action}: needs version {action.version} of the weights; the"
                    f" newest is {len(self._made) - 1}"
                )
            for version in range(self._waited[action.kind] + 1, action.version + 1):
                before += self._made[version]
            self._waited[action.kind] = max(self._waited[action.kind], action.version)
        return tuple(before)


def _source(step: Step, again: Sequence[Kind]) -> Step | None:
    """Return the step of the same stage whose result a step needs; B needs R or L of a micro-batch
    that has one, from which its features are there `again`.
    """
    before = again[0] if again and step.kind is Kind.BACKWARD else step.kind.before
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
    if kind in MOVES:
        return costs.offload_ps
    if machine.engines is Engines.SPLIT:
        # F takes F + B there, and R its part of F.
        part = Fraction(costs.recompute_ps, max(costs.forward_ps, 1))
        return math.ceil(part * costs.work_ps) if kind is Kind.RECOMPUTE else costs.work_ps
    if kind is Kind.FORWARD:
        return costs.forward_ps
    if kind is Kind.RECOMPUTE:
        return costs.recompute_ps
    if machine.backward is Backward.FUSED:
        return costs.backward_ps
    return costs.eb_ps if kind is Kind.BACKWARD else costs.known_pg_ps
