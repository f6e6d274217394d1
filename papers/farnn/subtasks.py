"""FARNN's sections 4 and 5.2 to 5.4: who does which task, what is transferred, and what overlaps."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

from ...emulator.schedule import Offload, schedules
from ...emulator.timing.pair import (
    Cell,
    LayerNeeds,
    OtherWork,
    Part,
    Phase,
    Resource,
    Task,
    TimedTask,
    Workload,
    all_needs,
    pair_of,
)
from ...kernels.number import FP32
from ..claim import Measure, Measured
from . import runs
from .runs import synthetic

_GPU_PARTS = (Part.INPUTS, Part.GRADIENTS, Part.UPDATE)


def timeline(schedule: str = "farnn") -> tuple[TimedTask, ...]:
    """Return the timeline of five layers of LSTM on FARNN-9P."""
    return runs.timed(synthetic(Cell.LSTM), "farnn-9p", schedule).timed


def tasks(keep: Callable[[Task], bool] = lambda task: True, schedule: str = "farnn") -> list[Task]:
    """Return the tasks of that timeline for which `keep` holds."""
    return [timed.task for timed in timeline(schedule) if keep(timed.task)]


def _unique(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


def _steps() -> Measured:
    steps = _unique(task.phase.value for task in tasks())
    steps += _unique(task.part.value for task in tasks(lambda task: task.part in (Part.GRADIENTS, Part.UPDATE)))
    return Measured(steps, "phases, and tasks after BW")


def _subtasks() -> Measured:
    forward, backward = ({task.part for task in tasks() if task.phase is phase} for phase in Phase)
    shared = [part.value for part in Part if part in forward & backward and part is not Part.WEIGHTS]
    return Measured(shared, "tasks in FW and in BW, without transfers")


def _on(resource: Resource, parts: tuple[Part, ...]) -> list[str]:
    kept = tasks(lambda task: task.resource is resource and task.part in parts)
    return sorted({f"{task.phase.value} {task.part.value}" for task in kept})


def _gpu_tasks() -> Measured:
    return Measured(_on(Resource.GPU, _GPU_PARTS), "tasks of the GPU, but for the transposition of R")


def _fpga_tasks() -> Measured:
    return Measured(_on(Resource.FPGA, tuple(Part)), "tasks of the FPGA; a projection is part of a step")


def _transfers(name: str) -> Measured:
    """Measure values of a step in and out of the FPGA, and weights of a layer, all in cells."""
    phase, [work, *_] = Phase(name), synthetic(Cell.LSTM).recurrent
    pair = pair_of(runs.cluster("farnn-9p"), schedules()["farnn"])
    step = next(iter(tasks(lambda task: task.part is Part.STEPS and task.phase is phase)))
    busy = dict(step.streams)
    one = pair.values_ps(work.steps * work.cells)
    vectors = [round(busy[link] / one) for link in (Resource.TO_FPGA, Resource.TO_GPU)]
    loads = tasks(lambda task: task.part is Part.WEIGHTS and task.phase is phase)
    return Measured([len(loads), *vectors], "transfers of R; vectors of a step to the FPGA, and to the GPU")


def _products() -> Measured:
    products = tasks(lambda task: task.part is Part.INPUTS and task.phase is Phase.FORWARD)
    return Measured(len(products) / runs.LAYERS, "tasks of FW I-MVM for all steps of a layer")


def _loop() -> Measured:
    [first, *_] = needs()
    return Measured(first.forward.total - first.forward.recurrent - first.forward.activation, "cycles of a step beyond")


def needs() -> list[LayerNeeds]:
    """Return what the layers take of FARNN-9P."""
    pair = pair_of(runs.cluster("farnn-9p"), schedules()["farnn"])
    return all_needs(synthetic(Cell.LSTM), pair, Offload.OVERLAPPED)


def _reload() -> Measured:
    turned = tasks(lambda task: task.part is Part.TRANSPOSE)
    loads = tasks(lambda task: task.part is Part.WEIGHTS and task.phase is Phase.BACKWARD)
    where = _unique(task.resource.value for task in turned)
    return Measured([len(turned), len(loads), *where], "transpositions, transfers of R in BW, and where")


def _pinned() -> Measured:
    loads = tasks(lambda task: task.part is Part.WEIGHTS)
    return Measured(len(loads) / (2 * runs.LAYERS), "transfers of R for each layer and phase")


def _saved() -> Measured:
    [first, *_] = needs()
    steps = tasks(lambda task: task.part is Part.STEPS)
    ratio = first.kept_bytes / FP32.bytes_of(runs.STEPS * runs.CELLS[Cell.LSTM])
    return Measured([ratio, len(steps) / runs.LAYERS], "vectors kept of a step: four gates, c and h; passes of a layer")


def _started() -> Measured:
    """Measure the largest time from the arrival of weights and I-MVM to the first step."""
    timed, waits = timeline(), []
    for timed_task in timed:
        if timed_task.task.part is Part.STEPS:
            waits.append(timed_task.start_ps - max(timed[other].end_ps for other in timed_task.task.after))
    return Measured(max(waits), "ps from the last that a pass waits for to its start, the longest")


def overlap_ps(ours: Callable[[Task], bool], theirs: Callable[[Task], bool]) -> int:
    """Return how long tasks of one kind run beside those of another."""
    timed = timeline()
    return sum(
        max(0, min(a.end_ps, b.end_ps) - max(a.start_ps, b.start_ps))
        for a in timed
        if ours(a.task)
        for b in timed
        if theirs(b.task)
    )


def _forward_overlap() -> Measured:
    both_ps = overlap_ps(
        lambda task: task.part is Part.INPUTS and task.phase is Phase.FORWARD,
        lambda task: task.part is Part.WEIGHTS and task.phase is Phase.FORWARD,
    )
    return Measured(both_ps / 1e9, "ms of I-MVM in parallel with transfers of R, of five layers")


def _backward_overlap() -> Measured:
    both_ps = overlap_ps(
        lambda task: task.part in (Part.GRADIENTS, Part.UPDATE),
        lambda task: task.phase is Phase.BACKWARD and task.part in (Part.WEIGHTS, Part.STEPS),
    )
    return Measured(both_ps / 1e9, "ms of GC and WU in parallel with BW of the next layer, of five layers")


def _amortised() -> Measured:
    """Measure the share of transfers of weights: with longer sequences, and with larger batches."""

    def share(steps: int, batch: int) -> float:
        timed = runs.timed(synthetic(Cell.LSTM, steps=steps, batch=batch), "farnn-9p")
        loads = [timed_task.task.duration_ps for timed_task in timed.timed if timed_task.task.part is Part.WEIGHTS]
        return sum(loads) / timed.mini_batch_ps

    by_length = [share(steps, 1) for steps in (100, 400, 1600)]
    by_batch = [share(1600, batch) for batch in (1, 2, 4)]
    falls = [now - then for series in (by_length, by_batch) for now, then in itertools.pairwise(series)]
    return Measured(falls, "falls of the share of transfers: 100, 400, 1,600 steps; batch 1, 2, 4")


def _one_transfer() -> Measured:
    loads = [
        [
            timed_task.task.duration_ps
            for timed_task in runs.timed(synthetic(Cell.LSTM, batch=batch), "farnn-9p").timed
            if timed_task.task.part is Part.WEIGHTS
        ]
        for batch in (1, 4)
    ]
    return Measured(sum(loads[1]) / sum(loads[0]), "time of transfers of R, batch 4 over 1")


def _projection() -> Measured:
    timed = runs.timed(runs.encoder(1), runs.LARGE_9P)
    passes = [timed_task.task.resource.value for timed_task in timed.timed if timed_task.task.part is Part.STEPS]
    kind = schedules()["farnn"]
    [first, *_] = all_needs(runs.encoder(1), pair_of(runs.cluster(runs.LARGE_9P), kind), Offload.OVERLAPPED)
    cycles = [first.forward.projection, first.backward.projection]
    return Measured([*_unique(passes), all(cycles)], f"of a step {cycles[0]:,} cycles in FW, {cycles[1]:,} in BW")


def _all_on_fpga() -> Measured:
    all_tasks = tasks(
        lambda task: task.part in (Part.INPUTS, Part.STEPS, Part.GRADIENTS, Part.UPDATE), "farnn-all-fpga"
    )
    return Measured(sorted({f"{task.part.value}: {task.resource.value}" for task in all_tasks}), "farnn-all-fpga")


def _in_turn() -> Measured:
    timed = timeline("farnn-no-overlap")
    return Measured(
        sum(timed_task.task.duration_ps for timed_task in timed) / timed[-1].end_ps,
        "sum of all tasks over the mini-batch",
    )


def _others() -> Measured:
    parts = (OtherWork("conv", 10**9), *synthetic(Cell.LSTM, layers=1).parts, OtherWork("fc", 10**6))
    timed = runs.timed(Workload("with others", parts), "farnn-9p").timed
    return Measured(
        _unique(timed_task.task.resource.value for timed_task in timed if timed_task.task.part is Part.OTHERS), "where"
    )


FUNCTIONS = {"transfers": _transfers}
MEASURES: dict[str, Measure] = {
    "farnn-four-steps": _steps,
    "farnn-subtasks": _subtasks,
    "farnn-t1-gpu-tasks": _gpu_tasks,
    "farnn-t1-fpga-tasks": _fpga_tasks,
    "farnn-imvm-independent": _products,
    "farnn-loop": _loop,
    "farnn-transposed-reload": _reload,
    "farnn-weights-pinned": _pinned,
    "farnn-gates-saved": _saved,
    "farnn-trigger": _started,
    "farnn-overlap-fw": _forward_overlap,
    "farnn-overlap-bw": _backward_overlap,
    "farnn-transfer-amortised": _amortised,
    "farnn-reuse-weights": _one_transfer,
    "farnn-projection-fpga": _projection,
    "farnn-fig10-allfpga-def": _all_on_fpga,
    "farnn-fig10-nooverlap-def": _in_turn,
    "farnn-others-part": _others,
}
