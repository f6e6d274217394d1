"""A run of a timeline: events in order of time, devices with queues of actions, links that carry messages."""

from __future__ import annotations

import collections
import dataclasses
import heapq
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..schedule import Engines, Kind, Machine, StageCosts, Transport
from .program import Step, Task


@dataclasses.dataclass(frozen=True)
class Timed:
    """An action in time, in ps; `released_by` is the step whose end or message let it start, None at the begin.

    Where rows trickle in more slowly than they are worked on, it is the step that sends them.
    """

    step: Step
    device: int
    start_ps: int
    end_ps: int
    released_by: Step | None


@dataclasses.dataclass(frozen=True)
class Sent:
    """A step's message in time, in ps: on the link from `start_ps` to `end_ps`; all of it has come at `arrival_ps`."""

    step: Step
    sender: int
    receiver: int
    start_ps: int
    end_ps: int
    arrival_ps: int


class Course(NamedTuple):
    """A schedule's actions and messages in time, both by their start."""

    timed: list[Timed]
    sent: list[Sent]


class Route(NamedTuple):
    """The way of a step's message: the stage it goes to, devices, and its time on the link between them in ps."""

    stage: int
    sender: int
    receiver: int
    transfer_ps: int


class Device:
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


class Run:
    """A run in which messages travel as a whole: events of one moment are all taken before anything starts."""

    def __init__(self, tasks: Sequence[Sequence[Task]], costs: Sequence[StageCosts], machine: Machine) -> None:
        self.devices = [Device(each, machine.engines) for each in tasks]
        self.timed: list[Timed] = []
        self.sent: list[Sent] = []
        self._costs, self._machine = costs, machine
        self._done: dict[Step, int] = {}
        self._arrived: dict[Step, int] = {}
        self._link_free: dict[tuple[int, int], int] = collections.defaultdict(int)
        self._events: list[tuple[int, int, int, int | None, Step | None]] = []
        """Time, a number in order of making, device, and the queue that is done or the message that arrives, if any."""
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
        own = task.before if task.source is None else (task.source, *task.before)
        late = next((step for step in own if step not in self._done), task.message)
        assert late is not None
        return f"{late.kind.value}{late.micro_batch} of stage {late.stage}"

    def _start_all(self, number: int, now: int) -> None:
        device = self.devices[number]
        for queue, tasks in enumerate(device.queues):
            if queue in device.running or not tasks or not self._is_ready(tasks[0], now):
                continue
            task = tasks.popleft()
            device.running[queue] = task, now, self._released_by(device, queue, task)
            self._start(device, queue, task, now)

    def _is_ready(self, task: Task, now: int) -> bool:
        """Return whether all that a task waits for is there."""
        return (
            (task.source is None or task.source in self._done)
            and (task.message is None or task.message in self._arrived)
            and all(step in self._done for step in task.before)
        )

    def _released_by(self, device: Device, queue: int, task: Task) -> Step | None:
        """Return what a task waited for longest; where several came at once, the step before it."""
        reasons = [(self._done[step], step) for step in task.before]
        if task.source is not None:
            reasons.append((self._came(task.source), task.source))
        if task.message is not None:
            reasons.append((self._arrived[task.message], task.message))
        if queue in device.last:
            reasons.append((self._done[device.last[queue]], device.last[queue]))
        latest = max((time for time, _ in reasons), default=0)
        return next((step for time, step in reversed(reasons) if time == latest), None)

    def _came(self, source: Step) -> int:
        """Return the time at which the result of a step was there, for another step of its stage to start."""
        return self._done[source]

    def _start(self, device: Device, queue: int, task: Task, now: int) -> None:
        if self._machine.engines is not Engines.SHARED:
            self._push(now + task.work_ps, task.device, queue)
            return
        device.end_ps = max(device.end_ps, now) + task.work_ps
        for each in device.running:
            self._push(device.end_ps, task.device, each)

    def _finish(self, number: int, queue: int, now: int) -> bool:
        """End what runs in a queue, unless others have joined it since; return whether it ended."""
        device = self.devices[number]
        if queue not in device.running or (self._machine.engines is Engines.SHARED and device.end_ps != now):
            return False
        task, start, released_by = device.running.pop(queue)
        step = device.last[queue] = task.step
        self._done[step] = now
        self.timed.append(Timed(step, number, start, now, released_by))
        self._send_done(step, start, now)
        return True

    def _send_done(self, step: Step, start: int, end: int) -> None:
        """Send the message of a step that is done to the device of the stage that needs it."""
        route = self._route(step)
        if route is None:
            return
        _, sender, receiver, transfer = route
        if sender == receiver:
            self._push(end, receiver, message=step)
            return
        begin = max(end if self._machine.transport is Transport.STORED else start, self._link_free[sender, receiver])
        left = self._link_free[sender, receiver] = begin + transfer
        arrival = max(end, left + self._machine.latency_ps)
        self.sent.append(Sent(step, sender, receiver, begin, left, arrival))
        self._push(arrival, receiver, message=step)

    def _route(self, step: Step) -> Route | None:
        """Return the way of a step's message, None if it sends none."""
        onwards = {Kind.FORWARD: 1, Kind.BACKWARD: -1}.get(step.kind, 0)
        to = step.stage + onwards
        if not onwards or not 0 <= to < len(self._costs):
            return None
        transfer = self._costs[step.stage].transfer_ps if onwards > 0 else self._costs[to].sent_errors_ps
        return Route(to, step.stage % len(self.devices), to % len(self.devices), transfer)

    def _push(self, time: int, number: int, queue: int | None = None, message: Step | None = None) -> None:
        heapq.heappush(self._events, (time, next(self._numbers), number, queue, message))
