"""Tasks of a mini-batch on a pair: what takes which resource for how long and waits for what, and when they run."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence

from .devices import Pair, product_ps, transposition_ps, update_ps
from .fpga import input_cycles, step_cycles, values_of
from .work import OtherWork, Part, Phase, RecurrentWork


class Resource(enum.Enum):
    """What does tasks, one at a time."""

    GPU = "GPU"
    TO_FPGA = "PCIe to FPGA"
    FPGA = "FPGA"
    TO_GPU = "PCIe to GPU"


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
class TimedTask:
    """A task with its start and its end."""

    task: Task
    start_ps: int
    end_ps: int


def run_tasks(tasks: Sequence[Task]) -> list[TimedTask]:
    """Return all tasks with their times.

    A task starts when its resources have done all tasks that stand before it and those that it waits for are done.
    """
    free = dict.fromkeys(Resource, 0)
    timed: list[TimedTask] = []
    for task in tasks:
        start = max([timed[other].end_ps for other in task.after] + [free[resource] for resource in task.resources])
        timed.append(TimedTask(task, start, start + task.duration_ps))
        free.update(dict.fromkeys(task.resources, timed[-1].end_ps))
    return timed


@dataclasses.dataclass(frozen=True)
class Costs:
    """Tasks with their durations; `batch` samples make a mini-batch. With `inputs_too`, I-MVM is the FPGA's.

    Values stream over both directions of the link while the FPGA computes. Such a task takes as long as the slowest of
    the three, plus the link's latency for each direction that is used.
    """

    pair: Pair
    batch: int
    inputs_too: bool = False

    def input_products(self, work: RecurrentWork, phase: Phase, direction: int) -> Task:
        """Return I-MVM of one direction on the GPU, over all time steps."""
        macs = self.batch * work.steps * work.input_weights
        return self._gpu(Part.INPUTS, phase, work, product_ps(self.pair.gpu, macs), direction)

    def gradients(self, work: RecurrentWork) -> Task:
        """Return GC of all directions: as many multiply-accumulates as I-MVM and the steps."""
        macs = work.directions * self.batch * work.steps * (work.input_weights + work.recurrent_weights)
        return self._gpu(Part.GRADIENTS, Phase.BACKWARD, work, product_ps(self.pair.gpu, macs))

    def update(self, work: RecurrentWork | OtherWork) -> Task:
        """Return WU of all directions."""
        directions = work.directions if isinstance(work, RecurrentWork) else 1
        duration = update_ps(self.pair.gpu, directions * work.parameters, self.pair.states)
        return self._gpu(Part.UPDATE, Phase.BACKWARD, work, duration)

    def transposition(self, work: RecurrentWork, weights: int, direction: int) -> Task:
        """Return the GPU's transposition of a direction's weights for BW."""
        duration = transposition_ps(self.pair.gpu, weights)
        return self._gpu(Part.TRANSPOSE, Phase.BACKWARD, work, duration, direction)

    def others(self, work: OtherWork, phase: Phase, passes: int = 1) -> Task:
        """Return layers without a state, on the GPU: FW, EB and PG are a pass each."""
        duration = product_ps(self.pair.gpu, passes * self.batch * work.macs)
        return self._gpu(Part.OTHERS, phase, work, duration)

    def load(self, work: RecurrentWork, phase: Phase, weights: int, direction: int) -> Task:
        """Return the transfer of weights to the PEs."""
        duration = self.pair.load_ps(weights)
        return Task(Part.WEIGHTS, phase, work.name, Resource.TO_FPGA, duration, direction=direction)

    def transfer(self, work: RecurrentWork, phase: Phase, link: Resource, direction: int) -> Task:
        """Return the transfer of the steps' values in one way as a task of its own."""
        to_fpga, to_gpu = self._values(Part.STEPS, work, phase, direction)
        values = to_fpga if link is Resource.TO_FPGA else to_gpu
        duration = self.pair.values_ps(self.batch * work.steps * values) + self.pair.link.latency_ps
        return Task(Part.VALUES, phase, work.name, link, duration, direction=direction)

    def steps(self, work: RecurrentWork, phase: Phase, direction: int, *, streamed: bool = True) -> Task:
        """Return the FPGA's time steps of a direction, sample by sample.

        In FW gates' sums of I-MVM come in and outputs leave; in BW errors of outputs come in, and those of gates leave
        with what else GC needs.
        """
        cycles = step_cycles(work, self.pair.array, backward=phase is Phase.BACKWARD).total
        values = self._values(Part.STEPS, work, phase, direction) if streamed else None
        return self._on_fpga(Part.STEPS, work, phase, direction, cycles, values)

    def input_steps(self, work: RecurrentWork, phase: Phase, direction: int) -> Task:
        """Return I-MVM of a direction on the FPGA: inputs come in; in BW errors of inputs leave."""
        cycles = input_cycles(work, self.pair.array, backward=phase is Phase.BACKWARD)
        values = self._values(Part.INPUTS, work, phase, direction)
        return self._on_fpga(Part.INPUTS, work, phase, direction, cycles, values)

    def gpu_steps(self, work: RecurrentWork, phase: Phase, step_ps: int) -> Task:
        """Return the time steps of all directions on the GPU, for the whole mini-batch."""
        return self._gpu(Part.STEPS, phase, work, work.directions * work.steps * step_ps)

    def _values(self, part: Part, work: RecurrentWork, phase: Phase, direction: int) -> tuple[int, int]:
        return values_of(work, direction, phase, part, inputs_too=self.inputs_too)

    def _gpu(
        self, part: Part, phase: Phase, work: RecurrentWork | OtherWork, duration_ps: int, direction: int = 0
    ) -> Task:
        return Task(part, phase, work.name, Resource.GPU, duration_ps, direction=direction)

    def _on_fpga(
        self,
        part: Part,
        work: RecurrentWork,
        phase: Phase,
        direction: int,
        cycles: int,
        values: tuple[int, int] | None,
    ) -> Task:
        """Return a task of the FPGA with `cycles` in each step and, streamed, values of each step on both links."""
        count = self.batch * work.steps
        computed = count * cycles * self.pair.cycle_ps
        if values is None:
            return Task(part, phase, work.name, Resource.FPGA, computed, direction=direction)
        streams = tuple(
            (link, self.pair.values_ps(count * values_per_step))
            for link, values_per_step in zip((Resource.TO_FPGA, Resource.TO_GPU), values, strict=True)
            if values_per_step
        )
        slowest = max(computed, *(busy for _, busy in streams))
        duration = slowest + len(streams) * self.pair.link.latency_ps
        return Task(part, phase, work.name, Resource.FPGA, duration, direction=direction, streams=streams)
