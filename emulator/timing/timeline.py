"""The timeline of a schedule: when boards run actions and messages travel.

Events are taken in order of time. A board has queues of actions; the first of a queue begins when
the one before it has ended and all that it waits for is there. Boards keep what runs and what links
carry last, so a timeline may follow on another. Where an engine is shared, actions that run
together slow one another and end together.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import heapq
import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels import serve
from ..common import InputError
from ..schedule import (
    Engines,
    Fold,
    Kind,
    Machine,
    Schedule,
    StageCosts,
    Transport,
)
from .board import (
    ActionBoard,
    Carried,
    DeviceTasks,
    Message,
    Ran,
    StageLoads,
    Step,
    Task,
    Wire,
    engine_of,
    tasks_of,
)
from .routes import UpdateWaits

Rows = NDArray[np.int64]
"""Times in ps of each row, (samples, rows)."""


class Timed(NamedTuple):
    """An action in time, in ps; `released_by` is the step whose end or message let it start, None
    at the begin.

    Where rows trickle in more slowly than they are worked on, it is the step that sends them.
    """

    step: Step
    device: int
    start_ps: int
    end_ps: int
    released_by: Step | None


class Sent(NamedTuple):
    """A step's message in time, in ps: on the link from `start_ps` to `end_ps`; all of it has come
    at `arrival_ps`.
    """

    step: Step
    sender: int
    receiver: int
    start_ps: int
    end_ps: int
    arrival_ps: int


@dataclasses.dataclass(frozen=True)
class Timeline:
    """A schedule's actions and messages in time, both by their start."""

    timed: Sequence[Timed]
    sent: Sequence[Sent]

    @functools.cached_property
    def ran(self) -> Mapping[Step, Ran]:
        """Start and end of each step."""
        return {timed.step: Ran(timed.start_ps, timed.end_ps) for timed in self.timed}

    @functools.cached_property
    def carried(self) -> Mapping[Step, Carried]:
        """When each step's message was on a link and has come, where it leaves the board."""
        return {
            sent.step: Carried(sent.start_ps, sent.end_ps, sent.arrival_ps) for sent in self.sent
        }


def timeline_of(
    schedule: Schedule,
    loads: StageLoads,
    boards: Sequence[ActionBoard],
    passed: int = 0,
    waits: UpdateWaits | None = None,
) -> Timeline:
    """Return the timeline of a schedule on some boards, which are then as they are at its end.

    Args:
        schedule: the schedule; its updates take no time of their own.
        loads: what the stages take.
        boards: the boards, which begin where an earlier timeline has left them.
        passed: samples that they have done before, since the start of training; faults are counted
            from there.
        waits: what updates wait for beside the gradients of their own stage, if anything.

    Raises:
        InputError: the schedule is incomplete or deadlocks, with device and action; or the costs do
            not fit it.
    """
    kind = _Streamed if loads.machine.transport is Transport.STREAMED else _Whole
    run = kind(tasks_of(schedule, loads), schedule.fold, loads, boards, passed, waits)
    stuck = run.work_off()
    if stuck:
        where = "; ".join(
            f"device {task.device} waits at {task.action} for {run.missing(task)}" for task in stuck
        )
        raise InputError(f"schedule {schedule.name}: deadlock: {where}")
    run.timed.sort(key=lambda timed: (timed.start_ps, timed.device, timed.end_ps))
    run.sent.sort(key=lambda sent: (sent.start_ps, sent.sender, sent.receiver))
    return Timeline(run.timed, run.sent)


_ONWARDS = {Kind.FORWARD: 1, Kind.BACKWARD: -1}
"""Where messages go, in stages."""


class _Route(NamedTuple):
    """The way of a step's message: the stage it goes to, and boards."""

    stage: int
    sender: int
    receiver: int


class _Running(NamedTuple):
    """A task that runs, its start in ps, and what released it."""

    task: Task
    start_ps: int
    released_by: Step | None


class _Queue:
    """Tasks that a board does one after another."""

    def __init__(self) -> None:
        self.tasks: collections.deque[Task] = collections.deque()
        self.running: _Running | None = None
        self.last: Step | None = None
        self.released_by: Step | None = None  # of the first task, once its start is known
        self.has_start = False


class _Whole:
    """A timeline in which messages travel as a whole: what ends in a moment has ended before
    anything starts in it.
    """

    def __init__(
        self,
        tasks: Sequence[DeviceTasks],
        fold: Fold,
        loads: StageLoads,
        boards: Sequence[ActionBoard],
        passed: int,
        waits: UpdateWaits | None,
    ) -> None:
        self.timed: list[Timed] = []
        self.sent: list[Sent] = []
        self._fold, self._loads, self._machine, self._boards, self._passed = (
            fold,
            loads,
            loads.machine,
            boards,
            passed,
        )
        self._is_shared = loads.machine.engines is Engines.SHARED
        self._queues: list[list[_Queue]] = []
        for of_board, _ in tasks:
            queues: dict[Kind | None, _Queue] = collections.defaultdict(_Queue)
            for task in of_board:
                queues[engine_of(task.step.kind, loads.machine.engines)].tasks.append(task)
            self._queues.append(list(queues.values()))
        self._waits = waits
        self._makes = (
            {}
            if waits is None
            else {step: made for _, makes in tasks for step, made in makes.items()}
        )
        self._left = collections.Counter(
            (step.stage, version) for step, version in self._makes.items()
        )
        """Steps whose gradients are missing of a stage's version."""
        self._ready_ps = {
            (stage, 0): ps for board in boards for stage, ps in board.updated_ps.items()
        }
        """When a stage's version is there, where updates wait for other devices."""
        self._begin_ps = [board.free_ps for board in boards]
        self._pool_ps = [0] * len(boards)  # the end of what runs in a shared pool
        self._done_ps: dict[Step, int] = {}
        self._came_ps = self._done_ps
        """When the next step of the stage may begin to take a step's result."""
        self._arrived_ps: dict[Step, int] = {}
        self._numbers = itertools.count()
        self._starts: list[tuple[int, int, int]] = []
        """Time, board and queue of what may start."""
        self._ends: list[tuple[int, int, int, int]] = []
        """Time, a number in order of making, board and queue of what ends unless another joins it.
        """

    def work_off(self) -> list[Task]:
        """Run until nothing can start any more; return the tasks that are left at the head of
        queues.
        """
        starts, ends = self._starts, self._ends
        for board in range(len(self._queues)):
            self._offer(board)
        while starts or ends:
            now = min(heap[0][0] for heap in (starts, ends) if heap)
            # Ends before starts of the same moment: they free queues, and may add starts to this
            # very moment.
            while ends and ends[0][0] == now:
                _, _, board, place = heapq.heappop(ends)
                self._end(board, self._queues[board][place], now)
            while starts and starts[0][0] == now:
                _, board, place = heapq.heappop(starts)
                queue = self._queues[board][place]
                queue.running, queue.has_start = (
                    _Running(queue.tasks.popleft(), now, queue.released_by),
                    False,
                )
                self._begin(board, place, now)
        return [queue.tasks[0] for queues in self._queues for queue in queues if queue.tasks]

    def missing(self, task: Task) -> str:
        """Return what a task waits for."""
        own = task.before if task.source is None else (task.source, *task.before)
        late = next((step for step in own if step not in self._done_ps), task.message)
        if late is None:
            return f"version {task.version} of the weights of stage {task.step.stage}"
        return f"{late.kind.value}{late.micro_batch} of stage {late.stage}"

    def _offer(self, board: int) -> None:
        """Note when the first tasks of a board's idle queues start, where all that they wait for is
        known.
        """
        for place, queue in enumerate(self._queues[board]):
            if queue.tasks and queue.running is None and not queue.has_start:
                start_ps = self._start_of(board, queue, queue.tasks[0])
                if start_ps is not None:
                    queue.has_start = True
                    heapq.heappush(self._starts, (start_ps, board, place))

    def _start_of(self, board: int, queue: _Queue, task: Task) -> int | None:
        """Return when a queue's first task starts, None if that is not known yet; note what
        releases it.

        That is what it waited for longest; where several came at once, the step before it.
        """
        if task.before and task.before[-1] not in self._done_ps:
            return None  # before all others, which may be many, are looked up again
        awaited = [(step, self._done_ps) for step in task.before]
        if task.source is not None:
            awaited.append((task.source, self._came_ps))
        if task.message is not None:
            awaited.append((task.message, self._arrived_ps))
        if queue.last is not None:
            awaited.append((queue.last, self._done_ps))
        start_ps, queue.released_by = self._begin_ps[board], None
        for step, known_ps in awaited:
            time_ps = known_ps.get(step)
            if time_ps is None:
                return None
            # `>=`: of what came in one moment the last entry counts, the queue's step before.
            if time_ps >= start_ps:
                start_ps, queue.released_by = time_ps, step
        if self._waits is None:
            return start_ps
        # Version 0 is there from the start; of later ones `_learn` says when.
        ready_ps = self._ready_ps.get((task.step.stage, task.version), None if task.version else 0)
        return None if ready_ps is None else max(start_ps, ready_ps)

    def _begin(self, number: int, place: int, now: int) -> None:
        """Begin the task that has just become a queue's running one."""
        queues, board = self._queues[number], self._boards[number]
        running = queues[place].running
        assert running is not None
        task, sample = running.task, self._passed + running.task.micro_batch.begin
        if not self._is_shared:
            self._push_end(
                board.run(task.step.kind, now, task.work_ps, sample).end_ps, number, place
            )
            return
        # One more puts off the end of all that run; `_end` passes over the earlier ends that were
        # noted of them.
        self._pool_ps[number] = max(self._pool_ps[number], now) + board.takes_ps(
            now, task.work_ps, sample
        )
        for other, queue in enumerate(queues):
            if queue.running is not None:
                self._push_end(self._pool_ps[number], number, other)

    def _push_end(self, time_ps: int, board: int, place: int) -> None:
        # Equal times end in the order in which they were noted.
        heapq.heappush(self._ends, (time_ps, next(self._numbers), board, place))

    def _end(self, number: int, queue: _Queue, now: int) -> None:
        """End what runs in a queue, unless another has joined it since."""
        if queue.running is None or (self._is_shared and self._pool_ps[number] != now):
            return
        (task, start_ps, released_by), queue.running = queue.running, None
        queue.last = task.step
        self._done_ps[task.step] = now
        self.timed.append(Timed(task.step, number, start_ps, now, released_by))
        if self._is_shared:
            self._boards[number].rest_from(now)
        self._learn(task.step, now)
        self._send(task, Ran(start_ps, now))
        self._offer(number)

    def _learn(self, step: Step, now: int) -> None:
        """Let updates that a step's gradients were missing for be made, where updates wait for
        other devices.
        """
        if self._waits is None or step not in self._makes:
            return
        own = step.stage, self._makes[step]
        self._left[own] -= 1
        if self._left[own]:
            return
        for stage, version, came_ps in self._waits.add(step.stage, now):
            device = self._fold.device(stage)
            self._ready_ps[stage, version] = came_ps
            self._boards[device].updated_ps[stage] = came_ps
            self._offer(device)

    def _send(self, task: Task, ran: Ran) -> None:
        """Send the message of a task that is done to the board of the stage that needs it."""
        route = self._routes.get((task.step.kind, task.step.stage))
        if route is None:
            return
        arrival_ps = ran.end_ps
        if route.sender != route.receiver:
            message = self._loads.message(task.step.kind, task.step.stage, task.micro_batch.samples)
            wire, sample = (
                self._boards[route.sender].wires[route.receiver],
                self._passed + task.micro_batch.begin,
            )
            carried = wire.carry(ran, message, self._machine.transport, sample)
            self.sent.append(Sent(task.step, route.sender, route.receiver, *carried))
            arrival_ps = carried.arrival_ps
        self._arrived_ps[task.step] = arrival_ps
        if route.sender != route.receiver:
            self._offer(route.receiver)

    @functools.cached_property
    def _routes(self) -> Mapping[tuple[Kind, int], _Route]:
        """By kind and stage, the ways of messages, where one is sent."""
        device, stages = self._fold.device, range(self._loads.count)
        onwards = (((kind, stage), stage + on) for kind, on in _ONWARDS.items() for stage in stages)
        return {
            sent: _Route(to, device(sent[1]), device(to)) for sent, to in onwards if to in stages
        }


class _Streamed(_Whole):
    """A timeline in which rows travel one by one: each is served as soon as it is there, by engine,
    then by link.

    A micro-batch has samples of rows. A row of F waits for the same part of the features, one of B
    for the same part of the errors; on the last stage, errors of a sample are there when all its
    rows are. W takes the errors that B takes. When a step starts, those that it takes rows from
    have started, so the times of all its rows follow at once.

    Raises:
        InputError: stages differ in the number of samples.
    """

    def __init__(
        self,
        tasks: Sequence[DeviceTasks],
        fold: Fold,
        loads: StageLoads,
        boards: Sequence[ActionBoard],
        passed: int,
        waits: UpdateWaits | None,
    ) -> None:
        super().__init__(tasks, fold, loads, boards, passed, waits)
        counts = {loads.costs(stage, 1).samples for stage in range(loads.count)}
        if len(counts) > 1:
            raise InputError(
                "`samples`: all stages must have the same number of samples in a micro-batch"
            )
        [self._samples] = counts
        self._came_ps = {}
        self._rows_arrive: dict[Step, Rows] = {}
        self._kept: dict[Step, Rows] = {}
        """For a started F when its rows are done, for a started B when its errors come, until B or
        W takes them.
        """

    def _begin(self, number: int, place: int, now: int) -> None:
        queue = self._queues[number][place]
        assert queue.running is not None
        task = queue.running.task
        step, costs = task.step, self._costs(task.step.stage)
        ready = np.maximum(self._inputs(task, costs.rows), now)
        row_ps = self._row_ps(task.work_ps, costs)
        done = serve(ready, row_ps, now)
        end = int(done[-1, -1])
        # Longer than all its rows take in a row: they have trickled in, so the sender held it up.
        if end > now + ready.size * row_ps and task.message is not None:
            queue.running = queue.running._replace(released_by=task.message)
        self._push_end(end, number, place)
        self._stream(step, done, row_ps)
        if step.kind is not Kind.GRADIENT:
            self._kept[step] = done if step.kind is Kind.FORWARD else ready
            # the next step of the stage begins with the first sample of F, or the first errors of B
            self._came_ps[step] = int(done[0, -1] if step.kind is Kind.FORWARD else ready[0, 0])
            self._offer(number)

    def _costs(self, stage: int) -> StageCosts:
        return self._loads.costs(stage, self._samples)

    def _inputs(self, task: Task, rows: int) -> Rows:
        """Return when the rows that each of a task's rows takes are there."""
        kept = None if task.source is None else self._kept.pop(task.source)
        if task.step.kind is Kind.GRADIENT and kept is not None:
            return kept
        ready: Rows = np.zeros((self._samples, rows), np.int64)
        if kept is not None:
            # B of a sample needs F of all its rows, on the last stage, too, to which no errors
            # come.
            ready = np.maximum(ready, kept[:, -1:])
        if task.message is not None:
            ready = np.maximum(ready, self._rows_arrive.pop(task.message))
        return ready

    def _stream(self, step: Step, done: Rows, row_ps: int) -> None:
        """Send the rows of a step, which are done at these times."""
        route = self._routes.get((step.kind, step.stage))
        if route is None:
            return
        stage, sender, receiver = route
        if sender == receiver:
            come = done
        else:
            wire = self._boards[sender].wires[receiver]
            takes_ps = self._loads.message(step.kind, step.stage, self._samples).takes_ps
            row_ps = self._row_ps(takes_ps, self._costs(step.stage))
            left = serve(done, row_ps, wire.free_ps)
            wire.free_ps = int(left[-1, -1])
            come = left + wire.latency_ps
            # `left` are ends: the first row was on the link a row before.
            carried = Carried(int(left[0, 0]) - row_ps, wire.free_ps, int(come[-1, -1]))
            self.sent.append(Sent(step, sender, receiver, *carried))
        rows, taken = done.shape[1], self._costs(stage).rows
        # Stages differ in rows: one that the receiver takes is there with the sender's rows up to
        # the same share.
        come = come[:, [-(-(row + 1) * rows // taken) - 1 for row in range(taken)]]
        self._rows_arrive[step] = come
        self._arrived_ps[step] = int(come[0, 0])
        if sender != receiver:
            self._offer(receiver)

    @staticmethod
    def _row_ps(time_ps: int, costs: StageCosts) -> int:
        return -(-time_ps // (costs.samples * costs.rows))

    def _send(self, task: Task, ran: Ran) -> None:
        """Do nothing: rows have left as they were done."""


def run_timeline(schedule: Schedule, costs: Sequence[StageCosts], machine: Machine) -> Timeline:
    """Return the timeline of a schedule of equal micro-batches, on boards that begin at time zero.

    Args:
        schedule: the schedule; its updates take no time, and its micro-batches are alike.
        costs: those of each stage.
        machine: how devices and links work.

    Raises:
        InputError: the schedule is incomplete or deadlocks, with device and action; or the costs do
            not fit it.
    """

    def message(kind: Kind, stage: int, samples: int) -> Message:
        return Message(
            costs[stage].transfer_ps if kind is Kind.FORWARD else costs[stage - 1].sent_errors_ps
        )

    devices = schedule.devices
    neighbours = [
        {(device + 1) % devices, (device - 1) % devices} - {device} for device in range(devices)
    ]
    boards = []
    for sender, receivers in enumerate(neighbours):
        wires = {receiver: Wire("", machine.latency_ps) for receiver in receivers}
        boards.append(ActionBoard(sender, machine, wires))
    return timeline_of(
        schedule,
        StageLoads(len(costs), machine, lambda stage, samples: costs[stage], message),
        boards,
    )
