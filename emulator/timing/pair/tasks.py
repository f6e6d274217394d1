"""A mini-batch on a pair: its tasks in order, their timeline, the parts of its time, utilisation,
and what limits.

A task takes a resource for some time and waits for others; values stream over the link beside some
of the FPGA's.

Their order is that of FARNN's Fig. 6, of the configurations it is compared with, or of a GPU alone.

Overlapped:
    FW  The GPU does I-MVM of a layer while R goes to the FPGA, whose steps begin when both are there. R goes as soon as
        the PEs have done the layer before, whose outputs I-MVM waits for.
    BW  The GPU transposes R and sends it anew. Its steps wait for the errors of the layer's outputs, which BW I-MVM of
        the layer behind makes. GC and WU of that layer run on the GPU meanwhile.
The GPU does its tasks one after another. So it transposes R after BW I-MVM of the layer behind,
which is older. In turn (section 6.2.4) nothing overlaps. A GPU alone does all steps of a layer, as
cuDNN trains it, and then those of the next.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....kernels.number import FP32
from ...cluster import Gpu
from ...common import InputError
from ...schedule import Offload
from .devices import (
    FLOPS_PER_MAC,
    Pair,
    input_cycles,
    input_weight_bytes,
    pe_words,
    persistent_step_ps,
    product_ps,
    recurrent_bytes,
    standard_step_ps,
    step_bytes,
    step_cycles,
    transposition_ps,
    unheld_bytes,
    update_ps,
)
from .work import OtherWork, Part, Phase, RecurrentWork, Workload

_FW, _BW = Phase.FORWARD, Phase.BACKWARD


class Resource(enum.Enum):
    """What does tasks, one at a time."""

    GPU = "GPU"
    TO_FPGA = "PCIe to FPGA"
    FPGA = "FPGA"
    TO_GPU = "PCIe to GPU"


@dataclasses.dataclass(frozen=True)
class Task:
    """A task of a layer on `resource`, for `duration_ps`; `after` are the places of tasks that it
    waits for.

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
        return f"{self.phase.value} {self.part.value} of {self.layer}" + (
            " (reverse)" if self.direction else ""
        )


@dataclasses.dataclass(frozen=True)
class TimedTask:
    """A task with its start and its end."""

    task: Task
    start_ps: int
    end_ps: int


def run_tasks(tasks: Sequence[Task]) -> list[TimedTask]:
    """Return all tasks with their times.

    A task starts when its resources have done all tasks that stand before it and those that it
    waits for are done.
    """
    free = dict.fromkeys(Resource, 0)
    timed: list[TimedTask] = []
    for task in tasks:
        inputs_ps = max((timed[other].end_ps for other in task.after), default=0)
        start = max(inputs_ps, *(free[resource] for resource in task.resources))
        timed.append(TimedTask(task, start, start + task.duration_ps))
        free.update(dict.fromkeys(task.resources, timed[-1].end_ps))
    return timed


@dataclasses.dataclass(frozen=True)
class Costs:
    """Tasks with their durations; `batch` samples make a mini-batch. With `inputs_too`, I-MVM is
    the FPGA's.

    Values stream over both directions of the link while the FPGA computes. Such a task takes as
    long as the slowest of the three, plus the link's latency for each direction that is used.
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
        macs = (
            work.directions
            * self.batch
            * work.steps
            * (work.input_weights + work.recurrent_weights)
        )
        return self._gpu(Part.GRADIENTS, Phase.BACKWARD, work, product_ps(self.pair.gpu, macs))

    def update(self, work: RecurrentWork | OtherWork) -> Task:
        """Return WU of all directions."""
        duration = update_ps(self.pair.gpu, work.array_bytes, self.pair.states)
        return self._gpu(Part.UPDATE, Phase.BACKWARD, work, duration)

    def transposition(self, work: RecurrentWork, size: int, direction: int) -> Task:
        """Return the GPU's transposition of a direction's weights, of some bytes, for BW."""
        duration = transposition_ps(self.pair.gpu, size)
        return self._gpu(Part.TRANSPOSE, Phase.BACKWARD, work, duration, direction)

    def others(self, work: OtherWork, phase: Phase, passes: int = 1) -> Task:
        """Return layers without a state, on the GPU: FW, EB and PG are a pass each."""
        duration = product_ps(self.pair.gpu, passes * self.batch * work.macs)
        return self._gpu(Part.OTHERS, phase, work, duration)

    def load(
        self, work: RecurrentWork, phase: Phase, direction: int, part: Part = Part.STEPS
    ) -> Task:
        """Return the transfer of the weights of a part to the PEs; steps of FW need the biases,
        too.
        """
        backward = phase is Phase.BACKWARD
        if part is Part.INPUTS:
            own, size = work.input_weights, input_weight_bytes(work, backward=backward)
        else:
            biases = 0 if backward else work.biases
            own = work.recurrent_weights + biases
            size = recurrent_bytes(work, backward=backward) + FP32.bytes_of(biases)
        duration = self.pair.load_ps(own, size)
        return Task(Part.WEIGHTS, phase, work.name, Resource.TO_FPGA, duration, direction=direction)

    def transfer(self, work: RecurrentWork, phase: Phase, link: Resource, direction: int) -> Task:
        """Return the transfer of the steps' values in one way as a task of its own."""
        to_fpga, to_gpu = self._values(Part.STEPS, work, phase, direction)
        size = to_fpga if link is Resource.TO_FPGA else to_gpu
        duration = self.pair.bytes_ps(self.batch * work.steps * size) + self.pair.link.latency_ps
        return Task(Part.VALUES, phase, work.name, link, duration, direction=direction)

    def steps(
        self, work: RecurrentWork, phase: Phase, direction: int, *, streamed: bool = True
    ) -> Task:
        """Return the FPGA's time steps of a direction, sample by sample.

        In FW gates' sums of I-MVM come in and outputs leave; in BW errors of outputs come in, and
        those of gates leave with what else GC needs.
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

    def _values(
        self, part: Part, work: RecurrentWork, phase: Phase, direction: int
    ) -> tuple[int, int]:
        return step_bytes(work, direction, phase, part, inputs_too=self.inputs_too)

    def _gpu(
        self,
        part: Part,
        phase: Phase,
        work: RecurrentWork | OtherWork,
        duration_ps: int,
        direction: int = 0,
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
        """Return a task of the FPGA with `cycles` in each step and, streamed, bytes of each step
        on both links.
        """
        count = self.batch * work.steps
        computed = count * cycles * self.pair.cycle_ps
        if values is None:
            return Task(part, phase, work.name, Resource.FPGA, computed, direction=direction)
        streams = tuple(
            (link, self.pair.bytes_ps(count * of_step))
            for link, of_step in zip((Resource.TO_FPGA, Resource.TO_GPU), values, strict=True)
            if of_step
        )
        slowest = max(computed, *(busy for _, busy in streams))
        duration = slowest + len(streams) * self.pair.link.latency_ps
        return Task(
            part, phase, work.name, Resource.FPGA, duration, direction=direction, streams=streams
        )


@dataclasses.dataclass
class _Overlapped:
    """The tasks so far; `ready` are those that make what the next part takes, `passed` the FPGA's
    last one.
    """

    costs: Costs
    tasks: list[Task] = dataclasses.field(default_factory=list)
    ready: tuple[int, ...] = ()
    passed: tuple[int, ...] = ()
    late: list[Task] = dataclasses.field(default_factory=list)
    """GC and WU of the layer behind, which the GPU does while the FPGA has the next."""

    def add(self, task: Task, after: Sequence[int] = ()) -> int:
        """Add a task that waits for others; return its place."""
        self.tasks.append(dataclasses.replace(task, after=tuple(dict.fromkeys(after))))
        return len(self.tasks) - 1

    def forward(self, work: RecurrentWork) -> None:
        """Add FW of a layer; of one with two directions, one after the other on the FPGA."""
        costs, each_way, done = self.costs, range(work.directions), []
        # Products of both directions come first: the GPU does those of the second beside the
        # steps of the first.
        products = [
            self.add(costs.input_products(work, _FW, direction), self.ready)
            for direction in each_way
            if not costs.inputs_too
        ]
        for direction in each_way:
            if costs.inputs_too:
                self._pass(work, costs.input_steps(work, _FW, direction), self.ready)
            needed = self.ready if costs.inputs_too else (products[direction],)
            done.append(self._pass(work, costs.steps(work, _FW, direction), needed))
        self.ready = tuple(done)

    def backward(self, work: RecurrentWork) -> None:
        """Add BW of a layer, and GC and WU of the one behind it."""
        costs, each_way, done = self.costs, range(work.directions), []
        weights = [recurrent_bytes(work, backward=False)]
        weights += [input_weight_bytes(work, backward=False)] * costs.inputs_too
        turned = []
        for own in weights:
            turnings = (costs.transposition(work, own, direction) for direction in each_way)
            turned.append(list(map(self.add, turnings)))
        # The FPGA waits for transposes, so they come first; then GC and WU fill the GPU's time.
        #     GPU     transposes | GC, WU of the layer behind | products
        #     FPGA               | steps .................... |
        self.finish()
        for direction in each_way:
            steps = costs.steps(work, _BW, direction)
            stepped = self._pass(work, steps, self.ready, turned[0][direction])
            if costs.inputs_too:
                done.append(
                    self._pass(
                        work, costs.input_steps(work, _BW, direction), (), turned[1][direction]
                    )
                )
            else:
                done.append(self.add(costs.input_products(work, _BW, direction), (stepped,)))
        self.ready = tuple(done)
        self.late = [costs.gradients(work), costs.update(work)]

    def others(self, work: OtherWork, phase: Phase) -> None:
        """Add layers without a state; in BW their gradients may wait, as GC does."""
        self.ready = (self.add(self.costs.others(work, phase), self.ready),)
        if phase is _BW:
            self.finish()
            self.late = [self.costs.others(work, phase), self.costs.update(work)]

    def finish(self) -> None:
        """Add GC and WU of the layer behind."""
        for task in self.late:
            self.add(task)
        self.late = []

    def _pass(self, work: RecurrentWork, task: Task, needed: Sequence[int], *sent: int) -> int:
        """Add a task of the FPGA behind the transfer of its weights, for which PEs must have done
        with others.
        """
        load = self.costs.load(work, task.phase, task.direction, task.part)
        loaded = self.add(load, (*self.passed, *sent))
        self.passed = (self.add(task, (*needed, loaded)),)
        return self.passed[0]


def overlapped(workload: Workload, costs: Costs) -> list[Task]:
    """Return the tasks of a pair whose GPU works beside the FPGA.

    If I-MVM is the FPGA's, too, it holds one matrix at a time: W, then R, and in BW their
    transposes the other way round.
    """
    making = _Overlapped(costs)
    for phase, part in workload.passes:
        if isinstance(part, OtherWork):
            making.others(part, phase)
        elif phase is _FW:
            making.forward(part)
        else:
            making.backward(part)
    making.finish()
    return making.tasks


def in_a_row(
    workload: Workload, costs: Costs, layer: Callable[[RecurrentWork, Phase], list[Task]]
) -> list[Task]:
    """Return tasks each of which waits for the one before it; `layer` gives those of I-MVM and of
    steps.
    """
    tasks: list[Task] = []
    for phase, part in workload.passes:
        forward = phase is _FW
        if isinstance(part, OtherWork):
            tasks.append(costs.others(part, phase, passes=1 if forward else 2))
        else:
            tasks += [*layer(part, phase), *([] if forward else [costs.gradients(part)])]
        tasks += [] if forward else [costs.update(part)]
    return [
        dataclasses.replace(task, after=(place - 1,) if place else ())
        for place, task in enumerate(tasks)
    ]


def in_turn(workload: Workload, costs: Costs) -> list[Task]:
    """Return the tasks of a pair that does one after another: transfers, FW, BW, GC and WU (section
    6.2.4).
    """

    def layer(work: RecurrentWork, phase: Phase) -> list[Task]:
        tasks: list[Task] = []
        for direction in range(work.directions):
            products = costs.input_products(work, phase, direction)
            passed = [
                costs.load(work, phase, direction),
                costs.transfer(work, phase, Resource.TO_FPGA, direction),
                costs.steps(work, phase, direction, streamed=False),
                costs.transfer(work, phase, Resource.TO_GPU, direction),
            ]
            if phase is _FW:
                tasks += [products, *passed]
            else:
                tasks += [
                    costs.transposition(work, recurrent_bytes(work, backward=False), direction),
                    *passed,
                    products,
                ]
        return tasks

    return in_a_row(workload, costs, layer)


def standard(workload: Workload, costs: Costs) -> list[Task]:
    """Return the tasks with cuDNN's standard form."""
    return _alone(workload, costs, standard_step_ps)


def persistent(workload: Workload, costs: Costs) -> list[Task]:
    """Return the tasks with cuDNN's persistent form.

    Raises:
        InputError: a layer has a projection.
    """
    for work in workload.recurrent:
        if work.projection is not None:
            raise InputError(
                f"`schedule` = 'gpu-persistent': {work.name} has a projection, which cuDNN's"
                " persistent form does not take; should be 'gpu-standard'"
            )
    return _alone(workload, costs, persistent_step_ps)


def _alone(
    workload: Workload, costs: Costs, step_ps: Callable[[Gpu, RecurrentWork, int], int]
) -> list[Task]:
    def layer(work: RecurrentWork, phase: Phase) -> list[Task]:
        products = [
            costs.input_products(work, phase, direction) for direction in range(work.directions)
        ]
        steps = costs.gpu_steps(work, phase, step_ps(costs.pair.gpu, work, costs.batch))
        return [*products, steps] if phase is _FW else [steps, *products]

    return in_a_row(workload, costs, layer)


_PASSES = 2
"""FW and BW, which have the same multiply-accumulates each."""


@dataclasses.dataclass(frozen=True)
class Busy:
    """How long a resource is busy in a mini-batch, and the task that keeps it busy longest."""

    resource: Resource
    busy_ps: int
    longest: Task


@dataclasses.dataclass(frozen=True)
class PairTimes:
    """The timeline of a mini-batch; `peak_ps` is what it would take at the peak, None without an
    FPGA.
    """

    workload: Workload
    timed: tuple[TimedTask, ...]
    peak_ps: int | None

    @property
    def mini_batch_ps(self) -> int:
        """Time of the mini-batch."""
        return max(timed.end_ps for timed in self.timed)

    @property
    def forward_ps(self) -> int:
        """Time of FW."""
        return max(timed.end_ps for timed in self.timed if timed.task.phase is Phase.FORWARD)

    @property
    def backward_ps(self) -> int:
        """Time of BW, GC and WU, which overlap."""
        return self.mini_batch_ps - self.forward_ps

    @property
    def utilisation(self) -> float | None:
        """Throughput over the peak, at which the GPU does all I-MVM and the FPGA all R-MVM (section
        6.2.3).
        """
        return None if self.peak_ps is None else self.peak_ps / self.mini_batch_ps

    @functools.cached_property
    def busy(self) -> Mapping[Resource, Busy]:
        """All resources that have tasks, with the time that they are busy."""
        tasks: dict[Resource, list[tuple[int, Task]]] = {}
        for task in (timed.task for timed in self.timed):
            tasks.setdefault(task.resource, []).append((task.duration_ps, task))
            for link, busy_ps in task.streams:
                tasks.setdefault(link, []).append((busy_ps, task))
        busy = {}
        for resource in (member for member in Resource if member in tasks):
            _, longest = max(tasks[resource], key=lambda use: use[0])
            busy[resource] = Busy(resource, sum(time for time, _ in tasks[resource]), longest)
        return busy

    @property
    def limit(self) -> Busy:
        """The resource that is busy longest."""
        return max(self.busy.values(), key=lambda use: use.busy_ps)


_TASKS: Mapping[Offload, Callable[[Workload, Costs], list[Task]]] = {
    Offload.OVERLAPPED: overlapped,
    Offload.IN_TURN: in_turn,
    Offload.ALL_STEPS: overlapped,
    Offload.STANDARD: standard,
    Offload.PERSISTENT: persistent,
}


def time_mini_batch(workload: Workload, pair: Pair, offload: Offload) -> PairTimes:
    """Return the timeline of a mini-batch.

    Raises:
        InputError: recurrent weights do not fit into the PEs, or a layer is of a kind that the
            devices cannot do.
    """
    inputs_too = offload is Offload.ALL_STEPS
    if pair.fpga is not None:
        check_memory(workload, pair, inputs_too=inputs_too)
    timed = run_tasks(_TASKS[offload](workload, Costs(pair, workload.batch, inputs_too)))
    return PairTimes(workload, tuple(timed), None if pair.fpga is None else peak_ps(workload, pair))


def check_memory(workload: Workload, pair: Pair, *, inputs_too: bool = False) -> None:
    """Check that PEs hold the weights of each layer.

    Raises:
        InputError: they do not; the message has the bytes that are missing.
    """
    for work in workload.recurrent:
        missing = unheld_bytes(work, pair.array, inputs_too=inputs_too)
        if missing:
            words = pe_words(work, pair.array, inputs_too=inputs_too)
            what = "weights" if inputs_too else "recurrent weights"
            raise InputError(
                f"`pe_words` = {pair.array.words}: the {what} of {work.name} take {words:,} words"
                f" in a PE, {missing:,} bytes too much in {work.gates} x {pair.array.pes} PEs;"
                f" should be {words} or more"
            )


def peak_ps(workload: Workload, pair: Pair) -> int:
    """Return the time of I-MVM at the GPU's peak and of R-MVM with all PEs, one after the other."""
    inputs = sum(work.directions * work.steps * work.input_weights for work in workload.recurrent)
    steps = sum(
        work.directions * work.steps * work.recurrent_weights for work in workload.recurrent
    )
    on_gpu = FLOPS_PER_MAC * inputs / pair.gpu.peak_tflops
    on_fpga = steps * pair.cycle_ps / (pair.array.units * pair.array.pes)
    return math.ceil(_PASSES * workload.batch * (on_gpu + on_fpga))


def times_as_json(times: PairTimes) -> dict[str, Any]:
    """Return times, utilisation, what limits, and the timeline."""
    resources = {
        resource.value: {
            "busy_ps": busy.busy_ps,
            "utilisation": busy.busy_ps / times.mini_batch_ps,
            "longest": busy.longest.name,
        }
        for resource, busy in times.busy.items()
    }
    return {
        "mini_batch_ps": times.mini_batch_ps,
        "forward_ps": times.forward_ps,
        "backward_ps": times.backward_ps,
        "peak_ps": times.peak_ps,
        "utilisation": times.utilisation,
        "samples_per_s": 1e12 * times.workload.batch / times.mini_batch_ps,
        "limit": times.limit.resource.value,
        "resources": resources,
        "tasks": [_task_as_json(timed) for timed in times.timed],
    }


def _task_as_json(timed: TimedTask) -> dict[str, Any]:
    task = timed.task
    return {
        "part": task.part.value,
        "phase": task.phase.value,
        "layer": task.layer,
        "direction": task.direction,
        "resource": task.resource.value,
        "start_ps": timed.start_ps,
        "end_ps": timed.end_ps,
        "streams_ps": {link.value: busy for link, busy in task.streams},
    }
