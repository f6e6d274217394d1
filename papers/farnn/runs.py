"""The paper's workloads and clusters, timed with the constants in force."""

from __future__ import annotations

from ...emulator.cluster import Cluster, board_keys, load_cluster
from ...emulator.schedule import schedules
from ...emulator.timing.pair import (
    Cell,
    PairTimes,
    RecurrentWork,
    Workload,
    pair_of,
    time_mini_batch,
)
from ..claim import constant
from ..constants import beside, cluster_changes, in_use, kept
from ..deepbench.model import phase_us

RECURRENT_US = constant("farnn", "board.recurrent_us")
RNNT_STEPS = constant("farnn", "rnnt.steps")
PERSISTENT = tuple(
    constant("farnn", f"board.persistent_{form}gbytes_per_s") for form in ("", "gru_")
)
"""Rates at which cuDNN's persistent form reads recurrent weights: of an LSTM, of a GRU."""
LAYERS, STEPS = 5, 1600
LSTM_CELLS, GRU_CELLS = 1024, 1280
CELLS = {Cell.LSTM: LSTM_CELLS, Cell.GRU: GRU_CELLS}
"""Figs. 7 to 9."""
FARNN = {
    ("9P", Cell.LSTM): "farnn-9p",
    ("13P", Cell.LSTM): "farnn-13p",
    ("VS", Cell.LSTM): "farnn-vs",
    ("9P", Cell.GRU): "farnn-9p-gru",
    ("13P", Cell.GRU): "farnn-13p-gru",
    ("VS", Cell.GRU): "farnn-vs-gru",
}
"""Clusters by build; LSTM with more than 1,024 cells has another one on the VU9P (section 6.1)."""
LARGE_9P = "farnn-9p-8k"
PES = {
    "farnn-9p": ("lstm_9p", 1),
    "farnn-13p": ("lstm_13p", 1),
    "farnn-vs": ("lstm_13p", 2),
    "farnn-9p-gru": ("gru_9p", 1),
    "farnn-13p-gru": ("gru_13p", 1),
    "farnn-vs-gru": ("gru_13p", 2),
}
"""PEs of a unit by cluster: by a constant, and how many times as many; FARNN-VS has twice
FARNN-13P's (section 6.8).
"""
CHAINS = 16
"""Of a unit (section 5.1.2)."""
STANDARD, PERSISTENT_FORM = "gpu-standard", "gpu-persistent"
DS2_LAYERS, DS2_STEPS, DS2_DIRECTIONS = 7, 548, 2
"""Section 6.4. Directions are taken to be added, so that a layer takes as many values as it has
cells.
"""
PADDING = {1: 1.0, 2: 1.164, 4: 1.3}
"""Length of padded sequences over the mean: 30 % more at batch 4 (section 6.4). At 2 it is
0.564/1.029 of that, as the largest of two and of four values that are spread normally."""
RNNT = {"layers": 8, "cells": 2048, "projection": 640}
"""Section 6.5."""


def synthetic(
    cell: Cell | str,
    batch: int = 1,
    *,
    steps: int = STEPS,
    cells: int | None = None,
    layers: int = LAYERS,
) -> Workload:
    """Return the synthetic benchmark of Figs. 7 to 10."""
    cell = Cell(cell)
    size = cells or CELLS[cell]
    works = [
        RecurrentWork(f"layer {place}", cell, size, size, steps) for place in range(1, layers + 1)
    ]
    return Workload(f"{cell.value}-{size}", tuple(works), batch)


def deep_speech(cell: Cell | str, batch: int) -> Workload:
    """Return the recurrent layers of Deep Speech 2, padded as a mini-batch of this size is."""
    cell = Cell(cell)
    size = CELLS[cell]
    one = RecurrentWork("layer", cell, size, size, DS2_STEPS, directions=DS2_DIRECTIONS).padded(
        PADDING[batch]
    )
    return Workload(f"ds2-{cell.value}", (one,) * DS2_LAYERS, batch)


def encoder(batch: int) -> Workload:
    """Return RNN-T's encoder."""
    steps = round(in_use(RNNT_STEPS))
    one = RecurrentWork(
        "layer", Cell.LSTM, RNNT["projection"], RNNT["cells"], steps, RNNT["projection"]
    )
    return Workload("rnnt-encoder", (one,) * RNNT["layers"], batch)


@kept
def cluster(name: str) -> Cluster:
    """Return a cluster with the constants in force; the V100's rates are the P100's by their memory
    bandwidths.
    """
    keys = cluster_changes()
    if name == "v100":
        ratio = v100_ratio()
        keys[RECURRENT_US.key] = in_use(RECURRENT_US) / ratio
        keys |= {rate.key: in_use(rate) * ratio for rate in PERSISTENT}
    if name in PES:
        build, times = PES[name]
        pes = in_use(constant("farnn", f"farnn.pes_{build}"))
        keys["board.pes_per_chain"] = times * round(pes) // CHAINS
    return load_cluster(name, keys)


def v100_ratio() -> float:
    """Return the V100's memory bandwidth over the P100's."""
    v100, p100 = (float(board_keys(name)["memory_gbytes_per_s"]) for name in ("v100", "p100"))
    return v100 / p100


@kept
def timed(workload: Workload, name: str, schedule: str = "farnn") -> PairTimes:
    """Return the timeline of a mini-batch on a cluster."""
    kind = schedules()[schedule]
    assert kind.offload is not None
    return time_mini_batch(workload, pair_of(cluster(name), kind), kind.offload)


def time_ps(workload: Workload, name: str, schedule: str = "farnn") -> int:
    """Return the time of a mini-batch."""
    return timed(workload, name, schedule).mini_batch_ps


def standard_ps(workload: Workload, gpu: str = "p100") -> int:
    """Return the time of cuDNN-Std."""
    return time_ps(workload, gpu, STANDARD)


def deepbench_ps(workload: Workload) -> int:
    """Return the time of a P100's standard form whose phases are as the model of DeepBench's rows
    has them.

    A phase is one of the first layer, whose shape all layers have; forward and backward count by
    their mean.
    """
    work = workload.recurrent[0]
    shapes = [
        (work.gates * work.cells, work.state, 3 * (work.gates + 1) * work.cells * workload.batch)
    ]
    if work.projection:
        shapes.append((work.projection, work.cells, 0))
    phases = [
        phase_us("p100", "float", *sides, workload.batch, values)
        for rows, columns, values in shapes
        for sides in ((rows, columns), (columns, rows))
    ]
    with beside({RECURRENT_US.key: sum(phases) / len(phases)}):
        return standard_ps(workload)


def persistent_ps(workload: Workload, gpu: str = "p100") -> int:
    """Return the time of cuDNN-PD."""
    return time_ps(workload, gpu, PERSISTENT_FORM)


def reduction(ours_ps: float, theirs_ps: float) -> float:
    """Return by how much less time is taken, in percent."""
    return 100 * (1 - ours_ps / theirs_ps)
