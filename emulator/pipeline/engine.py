"""The timeline engine: schedule, costs and machine in, start and end of every action out."""

from __future__ import annotations

import collections
import dataclasses
import heapq
import itertools
from collections.abc import Iterator, Sequence

from ..common import InputError
from ..schedule import Kind, Schedule
from .costs import StageCosts
from .machine import Engines, Machine, Transport
from .program import Step, Task, tasks_of


@dataclasses.dataclass(frozen=True)
class Timed:
    """An action in time, in ps; `released_by` is the step whose end or message let it start, None at the begin."""

    step: Step
    device: int
    start_ps: int
    end_ps: int
    released_by: Step | None


def run_timeline(schedule: Schedule, costs: Sequence[StageCosts], machine: Machine) -> list[Timed]:
    """Return the actions of a schedule by their start, then by device.

    Args:
        schedule: the schedule; its updates take no time.
        costs: those of each stage; stage c N + d is chunk c of device d of N.
        machine: how devices and links work.

    Raises:
        InputError: the schedule is incomplete or deadlocks, with device and action; or the costs do not fit it.
    """
    run = _Run(tasks_of(schedule, costs, machine), costs, machine)
    run.work_off()
    stuck = [task for device in run.devices for task in device.next_tasks()]
    if stuck:
        waits = "; ".join(f"device {task.device} waits at {task.name} for {run.missing(task)}" for task in stuck)
        raise InputError(f"schedule {schedule.name}: deadlock: {waits}")
    return sorted(run.timed, key=lambda timed: (timed.start_ps, timed.device, timed.end_ps))


class _Device:
    """A device's queues, one for each action that may run beside others, and what runs."""

    def __init__(self, tasks: Sequence[Task], engines: Engines) -> None:
        queues: dict[Kind | None, collections.deque[Task]] = collections.defaultdict(collections.deque)
        for task in tasks:
            queues[None if engines is Engines.TURNS else task.step.kind].append(task)
        self.queues = list(queues.values())
        self.running: dict[int, tuple[Task, int, Step | None]] = {}
        """For each busy queue its task, the start, and what released it."""
        self.end_ps = 0  # of the shared pool
        self.last: dict[int, Step] = {}
        """For each queue the step before."""

    def next_tasks(self) -> Iterator[Task]:
        """Yield the tasks that come next."""
        return (queue[0] for queue in self.queues if queue)


class _Run:
    """A run: events in order of time; those of one moment are all taken before anything starts."""

    def __init__(self, tasks: Sequence[Sequence[Task]], costs: Sequence[StageCosts], machine: Machine) -> None:
        self.devices = [_Device(each, machine.engines) for each in tasks]
        self.timed: list[Timed] = []
        self._costs, self._machine = costs, machine
        self._done: dict[Step, int] = {}
        self._arrived: dict[Step, int] = {}
        self._link_free: dict[tuple[int, int], int] = collections.defaultdict(int)
        self._events: list[tuple[int, int, int, int | None, Step | None]] = []
        """Time, a number in order of making, device, and the queue that is done or the message that arrives."""
        self._numbers = itertools.count()

    def work_off(self) -> None:
        """Run until nothing can start any more."""
        touched, now = set(range(len(self.devices))), 0
        while True:
            for number in sorted(touched):
                self._start_all(number, now)
            if not self._events:
                return
            now, touched = self._events[0][0], set()
            while self._events and self._events[0][0] == now:
                _, _, number, queue, message = heapq.heappop(self._events)
                if message is not None:
                    self._arrived[message] = now
                elif queue is not None and not self._finish(number, queue, now):
                    continue
                touched.add(number)

    def missing(self, task: Task) -> str:
        """Return what a task waits for."""
        late = next((step for step in task.before if step not in self._done), None)
        if late is None and task.message is not None:
            late = task.message
        assert late is not None
        return f"{late.kind.value}{late.micro_batch} of stage {late.stage}"

    def _start_all(self, number: int, now: int) -> None:
        device = self.devices[number]
        for queue, tasks in enumerate(device.queues):
            if queue in device.running or not tasks or not self._is_ready(tasks[0]):
                continue
            task = tasks.popleft()
            device.running[queue] = task, now, self._released_by(device, queue, task)
            if self._machine.engines is not Engines.SHARED:
                self._push(now + task.work_ps, number, queue)
                continue
            device.end_ps = max(device.end_ps, now) + task.work_ps
            for each in device.running:
                self._push(device.end_ps, number, each)

    def _is_ready(self, task: Task) -> bool:
        return all(step in self._done for step in task.before) and (
            task.message is None or task.message in self._arrived
        )

    def _released_by(self, device: _Device, queue: int, task: Task) -> Step | None:
        """Return what a task waited for longest; where several came at once, the step before it."""
        reasons = [(self._done[step], step) for step in task.before]
        if task.message is not None:
            reasons.append((self._arrived[task.message], task.message))
        if queue in device.last:
            reasons.append((self._done[device.last[queue]], device.last[queue]))
        latest = max((time for time, _ in reasons), default=0)
        return next((step for time, step in reversed(reasons) if time == latest), None)

    def _finish(self, number: int, queue: int, now: int) -> bool:
        """End what runs in a queue, unless others have joined it since; return whether it ended."""
        device = self.devices[number]
        if queue not in device.running or (self._machine.engines is Engines.SHARED and device.end_ps != now):
            return False
        task, start, released_by = device.running.pop(queue)
        step = device.last[queue] = task.step
        self._done[step] = now
        self.timed.append(Timed(step, number, start, now, released_by))
        self._send(step, start, now)
        return True

    def _send(self, step: Step, start: int, end: int) -> None:
        """Send the message of a step that is done to the device of the stage that needs it."""
        onwards = {Kind.FORWARD: 1, Kind.BACKWARD: -1}.get(step.kind, 0)
        to = step.stage + onwards
        if not onwards or not 0 <= to < len(self._costs):
            return
        sender, receiver = step.stage % len(self.devices), to % len(self.devices)
        if sender == receiver:
            self._push(end, receiver, message=step)
            return
        transfer = self._costs[min(step.stage, to)].transfer_ps
        begin = end if self._machine.transport is Transport.STORED else start
        sent = max(begin, self._link_free[sender, receiver]) + transfer
        self._link_free[sender, receiver] = sent
        self._push(max(end, sent + self._machine.latency_ps), receiver, message=step)

    def _push(self, time: int, number: int, queue: int | None = None, message: Step | None = None) -> None:
        heapq.heappush(self._events, (time, next(self._numbers), number, queue, message))
