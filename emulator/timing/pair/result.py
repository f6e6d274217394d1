"""A mini-batch on a pair: its timeline, the parts of its time, utilisation, and what limits."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

from ...common import InputError
from ...schedule import Offload
from .devices import FLOPS_PER_MAC, Pair
from .fpga import pe_words, unheld_bytes
from .order import in_turn, overlapped, persistent, standard
from .tasks import Costs, Resource, Task, TimedTask, run_tasks
from .work import Phase, Workload

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
