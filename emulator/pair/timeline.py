"""The timeline of tasks: each resource does its tasks in their order, when those that they wait for are done."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from .tasks import Resource, Task


@dataclasses.dataclass(frozen=True)
class Timed:
    """A task with its start and its end."""

    task: Task
    start_ps: int
    end_ps: int


def run(tasks: Sequence[Task]) -> list[Timed]:
    """Return all tasks with their times.

    A task starts when its resources have done all tasks that stand before it and those that it waits for are done.
    """
    free = dict.fromkeys(Resource, 0)
    timed: list[Timed] = []
    for task in tasks:
        start = max([timed[other].end_ps for other in task.after] + [free[each] for each in task.resources])
        timed.append(Timed(task, start, start + task.duration_ps))
        free.update(dict.fromkeys(task.resources, timed[-1].end_ps))
    return timed
