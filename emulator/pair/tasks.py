"""Tasks of a mini-batch: what takes which resource for how long, waits for what, and when each of them runs."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence


class Resource(enum.Enum):
    """What does tasks, one at a time."""

    GPU = "GPU"
    TO_FPGA = "PCIe to FPGA"
    FPGA = "FPGA"
    TO_GPU = "PCIe to GPU"


class Part(enum.Enum):
    """What a task does (FARNN, section 4)."""

    INPUTS = "I-MVM"
    STEPS = "R-MVM and activations"
    WEIGHTS = "weights"
    VALUES = "values"
    TRANSPOSE = "transposition"
    GRADIENTS = "GC"
    UPDATE = "WU"
    OTHERS = "others"


class Phase(enum.Enum):
    """Whether a task belongs to FW, or to BW, GC and WU, which overlap."""

    FORWARD = "FW"
    BACKWARD = "BW"


@dataclasses.dataclass(frozen=True)
class Task:
    """A task of a layer on `resource`, for `duration_ps`; `after` are the places of tasks that it waits for.

    `streams` are the links that carry its values meanwhile, with the time that they are busy.
    """

    part: Part
    phase: Phase
    layer: str
    resource: Resource
    duration_ps: int
    after: tuple[int, ...] = ()
    direction: int = 0
    streams: tuple[tuple[Resource, int], ...] = ()

    @property
    def resources(self) -> tuple[Resource, ...]:
        """All that no other task can use meanwhile."""
        return self.resource, *(link for link, _ in self.streams)

    @property
    def name(self) -> str:
        """What it does, for which layer."""
        return f"{self.phase.value} {self.part.value} of {self.layer}" + (" (reverse)" if self.direction else "")


class TaskList:
    """Tasks in the order in which their resources do them."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []

    def add(self, task: Task, after: Sequence[int] = ()) -> int:
        """Add a task that waits for others; return its place."""
        self.tasks.append(dataclasses.replace(task, after=tuple(dict.fromkeys(after))))
        return len(self.tasks) - 1


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
        start = max([timed[other].end_ps for other in task.after] + [free[resource] for resource in task.resources])
        timed.append(Timed(task, start, start + task.duration_ps))
        free.update(dict.fromkeys(task.resources, timed[-1].end_ps))
    return timed
