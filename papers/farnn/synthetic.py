"""FARNN's Figs. 2 and 7 to 10: throughput of a GPU, and synthetic layers on GPU, FARNN and its
other configurations.
"""

from __future__ import annotations

import itertools

from ...emulator.timing.pair import Cell, Part, Phase
from ..claim import Measured
from . import runs
from .runs import FARNN, persistent_ps, reduction, standard_ps, synthetic, time_ps

FIG_2_STEPS = 576
LENGTHS = (100, 200, 400, 800, 1600)
BATCHES = (1, 2, 4)
CELL_COUNTS = (256, 512, 1024)
FIG_10_STEPS = 800


def gpu_tflops(batch: int, part: Part | str) -> float:
    """Return what the P100 does of I-MVM or R-MVM in FW of a layer of Fig. 2, in TFLOPS, in the
    standard form.
    """
    part, workload = Part(part), synthetic(Cell.LSTM, steps=FIG_2_STEPS, batch=batch, layers=1)
    [work] = workload.recurrent
    timed = runs.timed(workload, "p100", runs.STANDARD).timed
    time_ps_ = sum(
        timed_task.task.duration_ps
        for timed_task in timed
        if timed_task.task.part is part and timed_task.task.phase is Phase.FORWARD
    )
    macs = work.input_weights if part is Part.INPUTS else work.gate_weights
    # Operations a picosecond are TFLOPS.
    return 2 * macs * work.steps * batch / time_ps_


def gain_over_persistent(build: str, cell: Cell) -> float:
    """Return by how much less time FARNN takes than cuDNN-PD, in percent."""
    workload = synthetic(cell)
    return reduction(time_ps(workload, FARNN[build, cell]), persistent_ps(workload))


def fig_7(build: str, cells: str) -> Measured:
    """Measure by how much less time a build takes than cuDNN-PD."""
    cell = Cell(cells)
    ms = time_ps(synthetic(cell), FARNN[build, cell]) / 1e9
    return Measured(
        gain_over_persistent(build, cell),
        f"{ms:.1f} ms; cuDNN-PD {persistent_ps(synthetic(cell)) / 1e9:.1f} ms",
    )


def fig_7_order() -> Measured:
    """Measure the differences of these gains between builds and cells."""
    gains = {
        (build, cell): gain_over_persistent(build, cell) for build in ("9P", "13P") for cell in Cell
    }
    differences = [gains["13P", cell] - gains["9P", cell] for cell in Cell]
    differences += [gains[build, Cell.LSTM] - gains[build, Cell.GRU] for build in ("9P", "13P")]
    return Measured(
        differences, "points: 13P over 9P for LSTM, for GRU; LSTM over GRU on 9P, on 13P"
    )


def persistent_falls() -> Measured:
    """Measure the falls of cuDNN-PD's speed-up with more cells."""
    gains = [
        standard_ps(synthetic(Cell.LSTM, cells=cells))
        / persistent_ps(synthetic(Cell.LSTM, cells=cells))
        for cells in CELL_COUNTS
    ]
    falls = [before - after for before, after in itertools.pairwise(gains)]
    shown = ", ".join(f"{gain:.3g}" for gain in gains)
    return Measured(falls, f"falls of cuDNN-PD's speed-up, {shown}: 256, 512, 1,024 cells")


def speed_up(build: str, steps: int, batch: int = 1, cell: Cell = Cell.LSTM) -> float:
    """Return FARNN's speed-up over cuDNN-Std."""
    workload = synthetic(cell, steps=steps, batch=batch)
    return standard_ps(workload) / time_ps(workload, FARNN[build, cell])


def growth() -> Measured:
    """Measure the growth of the speed-up with longer sequences."""
    growths = []
    for build, cell in itertools.product(("9P", "13P"), Cell):
        gains = [speed_up(build, steps, cell=cell) for steps in LENGTHS]
        growths += [after - before for before, after in itertools.pairwise(gains)]
    return Measured(
        growths,
        "growth of the speed-up from 100 steps on, doubled each time: 9P, 13P, LSTM and GRU each",
    )


def batch_4() -> Measured:
    """Measure the times with batch 4 over cuDNN-Std's."""
    workload = synthetic(Cell.LSTM, batch=4)
    standard = standard_ps(workload)
    ratios = [
        persistent_ps(workload) / standard,
        time_ps(workload, FARNN["9P", Cell.LSTM]) / standard,
    ]
    return Measured(ratios, "LSTM, time over cuDNN-Std's: cuDNN-PD, FARNN-9P")


def batch_ratio(cell: str, build: str) -> float:
    """Return FARNN's time with batch 4 over that with 1."""
    cluster = FARNN[build, Cell(cell)]
    return time_ps(synthetic(cell, 4), cluster) / time_ps(synthetic(cell), cluster)


def recurrent_weights(cell: str) -> int:
    """Return the recurrent weights of a layer."""
    return synthetic(cell).recurrent[0].gate_weights


def utilisation(batch: int) -> Measured:
    """Measure the utilisation of FARNN-9P's multipliers."""
    run = runs.timed(synthetic(Cell.LSTM, batch=batch), FARNN["9P", Cell.LSTM])
    assert run.utilisation is not None
    return Measured(100 * run.utilisation, f"FARNN-9P: {run.mini_batch_ps / 1e9:.1f} ms")


def over_farnn(schedule: str, build: str = "9P") -> float:
    """Return the time of another configuration over FARNN's (Fig. 10)."""
    workload, cluster = synthetic(Cell.LSTM, steps=FIG_10_STEPS), FARNN[build, Cell.LSTM]
    return time_ps(workload, cluster, schedule) / time_ps(workload, cluster)


def layers() -> Measured:
    """Measure the growth of what overlap gains, with more layers."""
    gains = []
    for layers in (1, 2, 5):
        workload, cluster = synthetic(Cell.LSTM, layers=layers), FARNN["9P", Cell.LSTM]
        gains.append(time_ps(workload, cluster, "farnn-no-overlap") / time_ps(workload, cluster))
    shown = ", ".join(f"{gain:.4f}" for gain in gains)
    return Measured(
        [b - a for a, b in itertools.pairwise(gains)],
        f"growth of the gain, {shown}: 1, 2, 5 layers",
    )


def step_rate() -> float:
    """Return what steps of FW bring to the FPGA, in GB/s."""
    timed = runs.timed(synthetic(Cell.LSTM), FARNN["9P", Cell.LSTM])
    step = next(timed_task.task for timed_task in timed.timed if timed_task.task.part is Part.STEPS)
    # Four gates of 1,024 cells, 4 bytes each; a byte a picosecond is 1,000 GB/s.
    return 4 * 4 * 1024 * runs.STEPS * 1000 / step.duration_ps


def best_region() -> Measured:
    """Measure growth of the gain over the better of cuDNN's forms: smaller batches, longer
    sequences, more cells.
    """

    def gain(**keys: int) -> float:
        workload = synthetic(Cell.LSTM, **keys)
        best = min(standard_ps(workload), persistent_ps(workload))
        return best / time_ps(workload, FARNN["9P", Cell.LSTM])

    ways = {"batch": (4, 2, 1), "steps": LENGTHS, "cells": CELL_COUNTS}
    growths = []
    for key, values in ways.items():
        gains = [gain(**{key: value}) for value in values]
        growths += [after - before for before, after in itertools.pairwise(gains)]
    return Measured(
        growths,
        "growth over the better of both: batch 4, 2, 1; 100 to 1,600 steps; 256 to 1,024 cells",
    )
