"""A mini-batch on a pair: its tasks in order, its timeline, the parts of its time, utilisation, and what limits.

The order is that of FARNN's Fig. 6, of the configurations it is compared with, or of a GPU alone.

Overlapped:
    FW  The GPU does I-MVM of a layer while R goes to the FPGA, whose steps begin when both are there. R goes as soon as
        the PEs have done the layer before, whose outputs I-MVM waits for.
    BW  The GPU transposes R and sends it anew. Its steps wait for the errors of the layer's outputs, which BW I-MVM of
        the layer behind makes. GC and WU of that layer run on the GPU meanwhile.
The GPU does its tasks one after another. So it transposes R after BW I-MVM of the layer behind, which is older. In turn
(section 6.2.4) nothing overlaps. A GPU alone does all steps of a layer, as cuDNN trains it, and then those of the next.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...cluster import Gpu
from ...common import InputError
from ...schedule import Offload
from .devices import FLOPS_PER_MAC, Pair, persistent_step_ps, standard_step_ps
from .fpga import pe_words, unheld_bytes
from .tasks import Costs, Resource, Task, TaskList, TimedTask, run_tasks
from .work import OtherWork, Phase, RecurrentWork, Workload

_FW, _BW = Phase.FORWARD, Phase.BACKWARD


@dataclasses.dataclass
class _Making:
    """The tasks so far; `ready` are those that make what the next part takes, `passed` the FPGA's last one."""

    costs: Costs
    added: TaskList = dataclasses.field(default_factory=TaskList)
    ready: tuple[int, ...] = ()
    passed: tuple[int, ...] = ()
    late: list[Task] = dataclasses.field(default_factory=list)
    """GC and WU of the layer behind, which the GPU does while the FPGA has the next."""

    def forward(self, work: RecurrentWork) -> None:
        """Add FW of a layer; of one with two directions, one after the other on the FPGA."""
        products = (
            ()
            if self.costs.inputs_too
            else [self._add_inputs(work, _FW, direction) for direction in range(work.directions)]
        )
        done = []
        for direction in range(work.directions):
            if self.costs.inputs_too:
                self._pass_inputs(work, _FW, direction, self.ready)
            needed = self.ready if self.costs.inputs_too else (products[direction],)
            done.append(self._pass_steps(work, _FW, direction, needed))
        self.ready = tuple(done)

    def backward(self, work: RecurrentWork) -> None:
        """Add BW of a layer, and GC and WU of the one behind it."""
        each_way = range(work.directions)
        turned = [self._turn(work, work.recurrent_weights, direction) for direction in each_way]
        turned_inputs = [
            self._turn(work, work.input_weights, direction) for direction in each_way if self.costs.inputs_too
        ]
        self.finish()
        done = []
        for direction in each_way:
            stepped = self._pass_steps(work, _BW, direction, self.ready, (turned[direction],))
            if self.costs.inputs_too:
                done.append(self._pass_inputs(work, _BW, direction, (), (turned_inputs[direction],)))
            else:
                done.append(self.added.add(self.costs.input_products(work, _BW, direction), (stepped,)))
        self.ready = tuple(done)
        self.late = [self.costs.gradients(work), self.costs.update(work)]

    def others(self, work: OtherWork, phase: Phase) -> None:
        """Add layers without a state; in BW their gradients may wait, as GC does."""
        self.ready = (self.added.add(self.costs.others(work, phase), self.ready),)
        if phase is _BW:
            self.finish()
            self.late = [self.costs.others(work, phase), self.costs.update(work)]

    def finish(self) -> None:
        """Add GC and WU of the layer behind."""
        for task in self.late:
            self.added.add(task)
        self.late = []

    def _turn(self, work: RecurrentWork, weights: int, direction: int) -> int:
        return self.added.add(self.costs.transposition(work, weights, direction))

    def _add_inputs(self, work: RecurrentWork, phase: Phase, direction: int) -> int:
        return self.added.add(self.costs.input_products(work, phase, direction), self.ready)

    def _load(self, work: RecurrentWork, phase: Phase, weights: int, direction: int, after: Sequence[int]) -> int:
        """Add the transfer of weights, for which the PEs must have done with others."""
        return self.added.add(self.costs.load(work, phase, weights, direction), (*self.passed, *after))

    def _pass_steps(
        self, work: RecurrentWork, phase: Phase, direction: int, needed: Sequence[int], sent: Sequence[int] = ()
    ) -> int:
        loaded = self._load(work, phase, _recurrent(work, phase), direction, sent)
        place = self.added.add(self.costs.steps(work, phase, direction), (*needed, loaded))
        self.passed = (place,)
        return place

    def _pass_inputs(
        self, work: RecurrentWork, phase: Phase, direction: int, needed: Sequence[int], sent: Sequence[int] = ()
    ) -> int:
        loaded = self._load(work, phase, work.input_weights, direction, sent)
        place = self.added.add(self.costs.input_steps(work, phase, direction), (*needed, loaded))
        self.passed = (place,)
        return place


def _recurrent(work: RecurrentWork, phase: Phase) -> int:
    """Return the number of a direction's weights that go to the FPGA for its steps; FW needs the biases, too."""
    return work.recurrent_weights + (work.biases if phase is _FW else 0)


def overlapped(workload: Workload, costs: Costs) -> list[Task]:
    """Return the tasks of a pair whose GPU works beside the FPGA.

    If I-MVM is the FPGA's, too, it holds one matrix at a time: W, then R, and in BW their transposes the other way
    round.
    """
    making = _Making(costs)
    for part in workload.parts:
        if isinstance(part, OtherWork):
            making.others(part, _FW)
        else:
            making.forward(part)
    for part in reversed(workload.parts):
        if isinstance(part, OtherWork):
            making.others(part, _BW)
        else:
            making.backward(part)
    making.finish()
    return making.added.tasks


def in_turn(workload: Workload, costs: Costs) -> list[Task]:
    """Return the tasks of a pair that does one after another: transfers, FW, BW, GC and WU (section 6.2.4)."""
    tasks: list[Task] = []
    for part in workload.parts:
        if isinstance(part, OtherWork):
            tasks.append(costs.others(part, _FW))
            continue
        for direction in range(part.directions):
            tasks += [
                costs.input_products(part, _FW, direction),
                costs.load(part, _FW, _recurrent(part, _FW), direction),
                costs.transfer(part, _FW, Resource.TO_FPGA, direction),
                costs.steps(part, _FW, direction, streamed=False),
                costs.transfer(part, _FW, Resource.TO_GPU, direction),
            ]
    for part in reversed(workload.parts):
        if isinstance(part, OtherWork):
            tasks += [costs.others(part, _BW, passes=2), costs.update(part)]
            continue
        for direction in range(part.directions):
            tasks += [
                costs.transposition(part, part.recurrent_weights, direction),
                costs.load(part, _BW, _recurrent(part, _BW), direction),
                costs.transfer(part, _BW, Resource.TO_FPGA, direction),
                costs.steps(part, _BW, direction, streamed=False),
                costs.transfer(part, _BW, Resource.TO_GPU, direction),
                costs.input_products(part, _BW, direction),
            ]
        tasks += [costs.gradients(part), costs.update(part)]
    return in_a_row(tasks)


def in_a_row(tasks: Sequence[Task]) -> list[Task]:
    """Return tasks each of which waits for the one before it."""
    return [dataclasses.replace(task, after=(place - 1,) if place else ()) for place, task in enumerate(tasks)]


StepTime = Callable[[Gpu, RecurrentWork, int], int]


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
                f"`schedule` = 'gpu-persistent': {work.name} has a projection, which cuDNN's persistent form does not"
                " take; should be 'gpu-standard'"
            )
    return _alone(workload, costs, persistent_step_ps)


def _alone(workload: Workload, costs: Costs, step_ps: StepTime) -> list[Task]:
    tasks: list[Task] = []
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        forward = phase is Phase.FORWARD
        for part in workload.parts if forward else reversed(workload.parts):
            if isinstance(part, OtherWork):
                tasks.append(costs.others(part, phase, passes=1 if forward else 2))
                tasks += [] if forward else [costs.update(part)]
                continue
            products = [costs.input_products(part, phase, direction) for direction in range(part.directions)]
            steps = costs.gpu_steps(part, phase, step_ps(costs.pair.gpu, part, costs.batch))
            tasks += [*products, steps] if forward else [steps, *products, costs.gradients(part), costs.update(part)]
    return in_a_row(tasks)


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
    """The timeline of a mini-batch; `peak_ps` is what it would take at the peak, None without an FPGA."""

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
        """Throughput over the peak, at which the GPU does all I-MVM and the FPGA all R-MVM (section 6.2.3)."""
        return None if self.peak_ps is None else self.peak_ps / self.mini_batch_ps

    @functools.cached_property
    def busy(self) -> Mapping[Resource, Busy]:
        """All resources that have tasks, with the time that they are busy."""
        tasks: dict[Resource, list[tuple[int, Task]]] = {}
        for task in (timed.task for timed in self.timed):
            tasks.setdefault(task.resource, []).append((task.duration_ps, task))
            for link, busy_ps in task.streams:
                tasks.setdefault(link, []).append((busy_ps, task))
        return {
            resource: Busy(
                resource, sum(time for time, _ in tasks[resource]), max(tasks[resource], key=lambda use: use[0])[1]
            )
            for resource in Resource
            if resource in tasks
        }

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
        InputError: recurrent weights do not fit into the PEs, or a layer is of a kind that the devices cannot do.
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
                f"`pe_words` = {pair.array.words}: the {what} of {work.name} take {words:,} words in a PE, {missing:,}"
                f" bytes too much in {work.gates} x {pair.array.pes} PEs; should be {words} or more"
            )


def peak_ps(workload: Workload, pair: Pair) -> int:
    """Return the time of I-MVM at the GPU's peak and of R-MVM with all PEs, one after the other."""
    inputs = sum(work.directions * work.steps * work.input_weights for work in workload.recurrent)
    steps = sum(work.directions * work.steps * work.recurrent_weights for work in workload.recurrent)
    on_gpu = FLOPS_PER_MAC * inputs / pair.gpu.peak_tflops
    on_fpga = steps * pair.cycle_ps / (pair.array.units * pair.array.pes)
    return math.ceil(_PASSES * workload.batch * (on_gpu + on_fpga))


def times_as_json(times: PairTimes) -> dict[str, Any]:
    """Return times, utilisation, what limits, and the timeline."""
    return {
        "mini_batch_ps": times.mini_batch_ps,
        "forward_ps": times.forward_ps,
        "backward_ps": times.backward_ps,
        "peak_ps": times.peak_ps,
        "utilisation": times.utilisation,
        "samples_per_s": 1e12 * times.workload.batch / times.mini_batch_ps,
        "limit": times.limit.resource.value,
        "resources": {
            resource.value: {
                "busy_ps": busy.busy_ps,
                "utilisation": busy.busy_ps / times.mini_batch_ps,
                "longest": busy.longest.name,
            }
            for resource, busy in times.busy.items()
        },
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
