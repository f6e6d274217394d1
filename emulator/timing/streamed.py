"""A run in which rows travel one by one: each is served as soon as it is there, by the engine and then by the link.

A micro-batch has samples of rows. A row of F waits for the same part of the features, one of B for the same part of the
errors; on the last stage, errors of a sample are there when all its rows are. W takes the errors that B takes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...kernels import serve
from ..common import InputError
from ..schedule import Kind, Machine, StageCosts
from .course import Device, Run, Sent
from .program import Step, Task

Rows = NDArray[np.int64]
"""Times in ps of each row, (samples, rows)."""


class StreamedRun(Run):
    """A run whose messages are streamed.

    When a step starts, those that it takes rows from have started, so the times of all its rows follow at once.

    Raises:
        InputError: stages differ in the number of samples.
    """

    def __init__(self, tasks: Sequence[Sequence[Task]], costs: Sequence[StageCosts], machine: Machine) -> None:
        super().__init__(tasks, costs, machine)
        self._samples = costs[0].samples
        if any(each.samples != self._samples for each in costs):
            raise InputError("`samples`: all stages must have the same number of samples in a micro-batch")
        self._rows_arrive: dict[Step, Rows] = {}
        self._kept: dict[Step, Rows] = {}
        """For a started F when its rows are done, for a started B when its errors come, until B or W takes them."""

    def _is_ready(self, task: Task, now: int) -> bool:
        if not all(step in self._done for step in task.before):
            return False
        if task.message is not None and task.message not in self._arrived:
            return False
        return task.source is None or (task.source in self._kept and self._came(task.source) <= now)

    def _came(self, source: Step) -> int:
        """Return when the first sample of F is done, or the first errors of B have come."""
        return int(self._kept[source][0, -1 if source.kind is Kind.FORWARD else 0])

    def _start(self, device: Device, queue: int, task: Task, now: int) -> None:
        step, costs = task.step, self._costs[task.step.stage]
        ready = np.maximum(self._inputs(task, costs.rows), now)
        row_ps = self._row_ps(task.work_ps, costs)
        done = serve(ready, row_ps, now)
        end = int(done[-1, -1])
        if end > now + ready.size * row_ps and task.message is not None:
            device.running[queue] = task, now, task.message
        self._push(end, task.device, queue)
        if step.kind is not Kind.GRADIENT:
            self._kept[step] = done if step.kind is Kind.FORWARD else ready
            self._push(self._came(step), task.device)  # for the next step of the stage
        self._stream(step, done, row_ps)

    def _inputs(self, task: Task, rows: int) -> Rows:
        """Return when the rows that each of a task's rows takes are there."""
        kept = None if task.source is None else self._kept.pop(task.source)
        if task.step.kind is Kind.GRADIENT and kept is not None:
            return kept
        ready: Rows = np.zeros((self._samples, rows), np.int64)
        if kept is not None:
            ready = np.maximum(ready, kept[:, -1:])
        if task.message is not None:
            ready = np.maximum(ready, self._rows_arrive.pop(task.message))
        return ready

    def _stream(self, step: Step, done: Rows, row_ps: int) -> None:
        """Send the rows of a step, which are done at these times."""
        route = self._route(step)
        if route is None:
            return
        stage, sender, receiver, transfer = route
        if sender == receiver:
            come = done
        else:
            row_ps = self._row_ps(transfer, self._costs[step.stage])
            left = serve(done, row_ps, self._link_free[sender, receiver])
            self._link_free[sender, receiver] = int(left[-1, -1])
            come = left + self._machine.latency_ps
            self.sent.append(
                Sent(step, sender, receiver, int(left[0, 0]) - row_ps, int(left[-1, -1]), int(come[-1, -1]))
            )
        rows, taken = done.shape[1], self._costs[stage].rows
        come = come[:, [-(-(row + 1) * rows // taken) - 1 for row in range(taken)]]
        self._rows_arrive[step] = come
        self._push(int(come[0, 0]), receiver, message=step)

    @staticmethod
    def _row_ps(time_ps: int, costs: StageCosts) -> int:
        return -(-time_ps // (costs.samples * costs.rows))

    def _send_done(self, step: Step, start: int, end: int) -> None:
        """Do nothing: rows have left as they were done."""
