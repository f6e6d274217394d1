"""FARNN's sections 4 and 5: who does which task, what is transferred, and what overlaps; PE chains,
vector slices and split cells (section 5.1); and the builds of section 6.1.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

from ...emulator.cluster import Fpga, PeArray
from ...emulator.schedule import Offload, schedules
from ...emulator.timing.pair import (
    Cell,
    LayerNeeds,
    OtherWork,
    Part,
    Phase,
    RecurrentWork,
    Resource,
    Task,
    TimedTask,
    Workload,
    all_needs,
    mvm_cycles,
    pair_of,
    step_cycles,
    unsplit_cycles,
)
from ...kernels.number import FP32
from ..claim import Measured
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


def steps() -> Measured:
    """Return the phases, and the tasks after BW."""
    steps = _unique(task.phase.value for task in tasks())
    steps += _unique(
        task.part.value for task in tasks(lambda task: task.part in (Part.GRADIENTS, Part.UPDATE))
    )
    return Measured(steps, "phases, and tasks after BW")


def subtasks() -> Measured:
    """Return the tasks that FW and BW share."""
    forward = {task.part for task in tasks() if task.phase is Phase.FORWARD}
    backward = {task.part for task in tasks() if task.phase is Phase.BACKWARD}
    shared = [
        part.value for part in Part if part in forward & backward and part is not Part.WEIGHTS
    ]
    return Measured(shared, "tasks in FW and in BW, without transfers")


def _on(resource: Resource, parts: tuple[Part, ...]) -> list[str]:
    kept = tasks(lambda task: task.resource is resource and task.part in parts)
    return sorted({f"{task.phase.value} {task.part.value}" for task in kept})


def gpu_tasks() -> Measured:
    """Return the tasks of the GPU."""
    return Measured(
        _on(Resource.GPU, _GPU_PARTS), "tasks of the GPU, but for the transposition of R"
    )


def fpga_tasks() -> Measured:
    """Return the tasks of the FPGA."""
    return Measured(
        _on(Resource.FPGA, tuple(Part)), "tasks of the FPGA; a projection is part of a step"
    )


def transfers(name: str) -> Measured:
    """Measure values of a step in and out of the FPGA, and weights of a layer, all in cells."""
    phase, [work, *_] = Phase(name), synthetic(Cell.LSTM).recurrent
    pair = pair_of(runs.cluster("farnn-9p"), schedules()["farnn"])
    step = next(iter(tasks(lambda task: task.part is Part.STEPS and task.phase is phase)))
    busy = dict(step.streams)
    one = pair.values_ps(work.steps * work.cells)
    vectors = [round(busy[link] / one) for link in (Resource.TO_FPGA, Resource.TO_GPU)]
    loads = tasks(lambda task: task.part is Part.WEIGHTS and task.phase is phase)
    return Measured(
        [len(loads), *vectors], "transfers of R; vectors of a step to the FPGA, and to the GPU"
    )


def products() -> Measured:
    """Count the tasks of FW's I-MVM for a layer."""
    products = tasks(lambda task: task.part is Part.INPUTS and task.phase is Phase.FORWARD)
    return Measured(len(products) / runs.LAYERS, "tasks of FW I-MVM for all steps of a layer")


def loop() -> Measured:
    """Measure the cycles of a step beyond R-MVM and activations."""
    [first, *_] = needs()
    return Measured(
        first.forward.total - first.forward.recurrent - first.forward.activation,
        "cycles of a step beyond",
    )


def needs() -> list[LayerNeeds]:
    """Return what the layers take of FARNN-9P."""
    pair = pair_of(runs.cluster("farnn-9p"), schedules()["farnn"])
    return all_needs(synthetic(Cell.LSTM), pair, Offload.OVERLAPPED)


def reload() -> Measured:
    """Count transpositions of R and its transfers in BW, and say where it is transposed."""
    turned = tasks(lambda task: task.part is Part.TRANSPOSE)
    loads = tasks(lambda task: task.part is Part.WEIGHTS and task.phase is Phase.BACKWARD)
    where = _unique(task.resource.value for task in turned)
    return Measured(
        [len(turned), len(loads), *where], "transpositions, transfers of R in BW, and where"
    )


def pinned() -> Measured:
    """Count the transfers of R for each layer and phase."""
    loads = tasks(lambda task: task.part is Part.WEIGHTS)
    return Measured(len(loads) / (2 * runs.LAYERS), "transfers of R for each layer and phase")


def saved() -> Measured:
    """Measure the vectors that are kept of a step, and the passes of a layer."""
    [first, *_] = needs()
    steps = tasks(lambda task: task.part is Part.STEPS)
    ratio = first.kept_bytes / FP32.bytes_of(runs.STEPS * runs.CELLS[Cell.LSTM])
    return Measured(
        [ratio, len(steps) / runs.LAYERS],
        "vectors kept of a step: four gates, c and h; passes of a layer",
    )


def started() -> Measured:
    """Measure the largest time from the arrival of weights and I-MVM to the first step."""
    timed, waits = timeline(), []
    for timed_task in timed:
        if timed_task.task.part is Part.STEPS:
            waits.append(
                timed_task.start_ps - max(timed[other].end_ps for other in timed_task.task.after)
            )
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


def forward_overlap() -> Measured:
    """Measure how long I-MVM and transfers of R overlap."""
    both_ps = overlap_ps(
        lambda task: task.part is Part.INPUTS and task.phase is Phase.FORWARD,
        lambda task: task.part is Part.WEIGHTS and task.phase is Phase.FORWARD,
    )
    return Measured(both_ps / 1e9, "ms of I-MVM in parallel with transfers of R, of five layers")


def backward_overlap() -> Measured:
    """Measure how long GC and WU overlap with BW of the next layer."""
    both_ps = overlap_ps(
        lambda task: task.part in (Part.GRADIENTS, Part.UPDATE),
        lambda task: task.phase is Phase.BACKWARD and task.part in (Part.WEIGHTS, Part.STEPS),
    )
    return Measured(
        both_ps / 1e9, "ms of GC and WU in parallel with BW of the next layer, of five layers"
    )


def amortised() -> Measured:
    """Measure the share of transfers of weights: with longer sequences, and with larger batches."""

    def share(steps: int, batch: int) -> float:
        timed = runs.timed(synthetic(Cell.LSTM, steps=steps, batch=batch), "farnn-9p")
        loads = [
            timed_task.task.duration_ps
            for timed_task in timed.timed
            if timed_task.task.part is Part.WEIGHTS
        ]
        return sum(loads) / timed.mini_batch_ps

    by_length = [share(steps, 1) for steps in (100, 400, 1600)]
    by_batch = [share(1600, batch) for batch in (1, 2, 4)]
    falls = [
        now - then for series in (by_length, by_batch) for now, then in itertools.pairwise(series)
    ]
    return Measured(falls, "falls of the share of transfers: 100, 400, 1,600 steps; batch 1, 2, 4")


def one_transfer() -> Measured:
    """Measure the time of transfers of R, with four samples over one."""

    def loads_ps(batch: int) -> int:
        return sum(
            timed_task.task.duration_ps
            for timed_task in runs.timed(synthetic(Cell.LSTM, batch=batch), "farnn-9p").timed
            if timed_task.task.part is Part.WEIGHTS
        )

    return Measured(loads_ps(4) / loads_ps(1), "time of transfers of R, batch 4 over 1")


def projection() -> Measured:
    """Return where steps with a projection run, and whether it takes cycles."""
    timed = runs.timed(runs.encoder(1), runs.LARGE_9P)
    passes = [
        timed_task.task.resource.value
        for timed_task in timed.timed
        if timed_task.task.part is Part.STEPS
    ]
    kind = schedules()["farnn"]
    [first, *_] = all_needs(
        runs.encoder(1), pair_of(runs.cluster(runs.LARGE_9P), kind), Offload.OVERLAPPED
    )
    cycles = [first.forward.projection, first.backward.projection]
    return Measured(
        [*_unique(passes), all(cycles)],
        f"of a step {cycles[0]:,} cycles in FW, {cycles[1]:,} in BW",
    )


def all_on_fpga() -> Measured:
    """Return where each task of `farnn-all-fpga` runs."""
    all_tasks = tasks(
        lambda task: task.part in (Part.INPUTS, Part.STEPS, Part.GRADIENTS, Part.UPDATE),
        "farnn-all-fpga",
    )
    return Measured(
        sorted({f"{task.part.value}: {task.resource.value}" for task in all_tasks}),
        "farnn-all-fpga",
    )


def in_turn() -> Measured:
    """Measure the sum of all tasks' times over the mini-batch without overlap."""
    timed = timeline("farnn-no-overlap")
    return Measured(
        sum(timed_task.task.duration_ps for timed_task in timed) / timed[-1].end_ps,
        "sum of all tasks over the mini-batch",
    )


def others() -> Measured:
    """Return where layers that are not recurrent run."""
    parts = (
        OtherWork("conv", 10**9),
        *synthetic(Cell.LSTM, layers=1).parts,
        OtherWork("fc", 10**6),
    )
    timed = runs.timed(Workload("with others", parts), "farnn-9p").timed
    return Measured(
        _unique(
            timed_task.task.resource.value
            for timed_task in timed
            if timed_task.task.part is Part.OTHERS
        ),
        "where",
    )


_SIZES = (64, 256, 640, 1000, 1024, 1280, 2048)
_PES = (128, 192, 256, 384, 768)
PCIE_BITS, WORD_BITS = 512, 32
"""Section 5.1.2."""


def array(name: str) -> PeArray:
    """Return the MVM units of a cluster's FPGA."""
    board = runs.cluster(name).board(1)
    assert isinstance(board, Fpga) and board.pe_array is not None
    return board.pe_array


def unsplit(outputs: int, inputs: int, pes: int) -> int:
    """Return the cycles of a product on PEs, each of which makes whole outputs."""
    return unsplit_cycles(outputs, inputs, pes)


def split(outputs: int, inputs: int, pes: int) -> int:
    """Return the cycles of a product on PEs that may share outputs."""
    return mvm_cycles(outputs, inputs, pes)


def feed() -> Measured:
    """Count the lengths of vectors that take other than a cycle a value."""
    wrong = [size for size in _SIZES if mvm_cycles(256, size, 256) != size]
    return Measured(len(wrong), f"of {len(_SIZES)} lengths, those that take other than N cycles")


def per_round() -> Measured:
    """Count the builds in which a round makes other than W * L values."""
    wrong = [
        pes for pes in map(array, runs.FARNN.values()) if pes.pes != pes.chains * pes.pes_per_chain
    ]
    return Measured(len(wrong), "builds in which a round makes other than W * L values")


def rounds() -> Measured:
    """Count the sizes with another number of rounds than the formula's."""
    wrong = [
        (size, pes)
        for size in _SIZES
        for pes in _PES
        if unsplit_cycles(size, size, pes) != size * -(-size // pes)
    ]
    return Measured(
        len(wrong), f"of {len(_SIZES) * len(_PES)} sizes, those with another number of rounds"
    )


def words() -> Measured:
    """Measure the words of weights of the fullest PE."""
    work = RecurrentWork("lstm", Cell.LSTM, 1024, 1024, 1)
    return Measured(
        step_cycles(work, array("farnn-9p"), backward=False).pe_words,
        "words of the fullest PE, FARNN-9P",
    )


def exposed() -> Measured:
    """Measure the cycles of a step beyond R-MVM for LSTM layers with more than 256 cells."""
    exposed = []
    for cells in (512, 1024, 2048):
        cycles = step_cycles(
            RecurrentWork("lstm", Cell.LSTM, 1, cells, 1), array("farnn-9p"), backward=False
        )
        exposed.append(cycles.total - cycles.recurrent)
    return Measured(
        exposed, "cycles of a step beyond R-MVM: 512, 1,024 and 2,048 cells on FARNN-9P"
    )
