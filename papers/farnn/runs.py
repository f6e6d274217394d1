"""The paper's workloads and clusters, timed with the constants in force.

FARNN's sections 6.1, 6.7 and 6.8: the devices, half the PCIe lanes, and a Versal beside a V100.
"""

from __future__ import annotations

from ...emulator.cluster import Cluster, Gpu, board_keys, load_cluster
from ...emulator.pair import Cell, PairTimes, RecurrentWork, Workload, pair_of, time_mini_batch
from ...emulator.schedule import schedules
from ..claim import Measure, Measured
from ..constants import changed, in_force, kept
from .chains import array
from .constants import PCIE_GBPS, PERSISTENT, PERSISTENT_GRU, RECURRENT_US, RNNT_STEPS, in_use

LAYERS, STEPS = 5, 1600
CELLS = {Cell.LSTM: 1024, Cell.GRU: 1280}
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
STANDARD, PERSISTENT_FORM = "gpu-standard", "gpu-persistent"
DS2_LAYERS, DS2_STEPS, DS2_DIRECTIONS = 7, 548, 2
"""Section 6.4. Directions are taken to be added, so that a layer takes as many values as it has cells."""
PADDING = {1: 1.0, 2: 1.164, 4: 1.3}
"""Length of padded sequences over the mean: 30 % more at batch 4 (section 6.4). At 2 it is 0.564/1.029 of that, as the
largest of two and of four values that are spread normally."""
RNNT = {"layers": 8, "cells": 2048, "projection": 640}
"""Section 6.5."""


def synthetic(
    cell: Cell, *, steps: int = STEPS, batch: int = 1, cells: int | None = None, layers: int = LAYERS
) -> Workload:
    """Return the synthetic benchmark of Figs. 7 to 10."""
    size = cells or CELLS[cell]
    works = [RecurrentWork(f"layer {place}", cell, size, size, steps) for place in range(1, layers + 1)]
    return Workload(f"{cell.value}-{size}", tuple(works), batch)


def deep_speech(cell: Cell, batch: int) -> Workload:
    """Return the recurrent layers of Deep Speech 2, padded as a mini-batch of this size is."""
    size = CELLS[cell]
    one = RecurrentWork("layer", cell, size, size, DS2_STEPS, directions=DS2_DIRECTIONS).padded(PADDING[batch])
    return Workload(f"ds2-{cell.value}", (one,) * DS2_LAYERS, batch)


def encoder(batch: int) -> Workload:
    """Return RNN-T's encoder."""
    steps = round(in_use(RNNT_STEPS))
    one = RecurrentWork("layer", Cell.LSTM, RNNT["projection"], RNNT["cells"], steps, RNNT["projection"])
    return Workload("rnnt-encoder", (one,) * RNNT["layers"], batch)


@kept
def cluster(name: str) -> Cluster:
    """Return a cluster with the constants in force; the V100's rates are the P100's by their memory bandwidths."""
    keys = {key: value for key, value in changed().items() if key.startswith(("board.", "link."))}
    if name == "v100":
        ratio = board_keys("v100")["memory_gbytes_per_s"] / board_keys("p100")["memory_gbytes_per_s"]
        keys[RECURRENT_US.key] = in_use(RECURRENT_US) / ratio
        keys |= {constant.key: in_use(constant) * ratio for constant in (PERSISTENT, PERSISTENT_GRU)}
    return load_cluster(name, keys)


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


def persistent_ps(workload: Workload, gpu: str = "p100") -> int:
    """Return the time of cuDNN-PD."""
    return time_ps(workload, gpu, PERSISTENT_FORM)


def reduction(ours_ps: float, theirs_ps: float) -> float:
    """Return by how much less time is taken, in percent."""
    return 100 * (1 - ours_ps / theirs_ps)


XEON_LANES, CARD_LANES = 48, 16
"""PCIe lanes of a Xeon 6130, and of a card."""


def halved_ps(workload: Workload, cluster: str) -> int:
    """Return the time of a mini-batch with half the link's bandwidth."""
    with in_force({**changed(), PCIE_GBPS.key: in_use(PCIE_GBPS) / 2}):
        return time_ps(workload, cluster)


def _halved() -> Measured:
    found = {}
    for build in ("9P", "13P"):
        workload, cluster = deep_speech(Cell.LSTM, 2), FARNN[build, Cell.LSTM]
        found[build] = 100 * (halved_ps(workload, cluster) / time_ps(workload, cluster) - 1)
    return Measured(found["9P"], f"FARNN-9P, batch 2; FARNN-13P {found['13P']:.0f} %")


def _halved_gain() -> Measured:
    workload = deep_speech(Cell.LSTM, 2)
    best = min(standard_ps(workload), persistent_ps(workload))
    found = {build: reduction(halved_ps(workload, FARNN[build, Cell.LSTM]), best) for build in ("9P", "13P")}
    return Measured(found["9P"], f"FARNN-9P, batch 2; FARNN-13P {found['13P']:.0f} %")


def versal_gains() -> dict[str, float]:
    """Return by how much less time FARNN-VS takes than a V100, in percent: the better form of the latter."""
    found = {}
    for cell in Cell:
        for batch in (1, 2, 4):
            workload = deep_speech(cell, batch)
            best = min(standard_ps(workload, "v100"), persistent_ps(workload, "v100"))
            found[f"{workload.name}, batch {batch}"] = reduction(time_ps(workload, FARNN["VS", cell]), best)
    for batch in (1, 2, 4, 8):
        workload = encoder(batch)
        theirs = standard_ps(workload, "v100")
        found[f"{workload.name}, batch {batch}"] = reduction(time_ps(workload, FARNN["VS", Cell.LSTM]), theirs)
    return found


def _versal() -> Measured:
    found = versal_gains()
    best = max(found, key=lambda name: found[name])
    return Measured(found[best], f"{best}; the V100's steps by its memory bandwidth alone")


def _pes() -> Measured:
    found = [array(FARNN["VS", cell]).pes / array(FARNN["13P", cell]).pes for cell in Cell]
    return Measured(found, "PEs of a unit: LSTM, GRU")


def _assumptions() -> Measured:
    versal, base = cluster("farnn-vs"), cluster("farnn-13p")
    gpu = versal.board(0)
    assert isinstance(gpu, Gpu)
    same = versal.link == base.link, array("farnn-vs").activation_cycles == array("farnn-13p").activation_cycles
    return Measured([gpu.name, *same], "GPU; the same link and activations as FARNN-13P")


def _devices() -> Measured:
    pair = cluster("farnn-9p")
    return Measured([pair.board(0).name, pair.board(1).name], "clusters/farnn-9p.toml")


def _logic() -> Measured:
    ours, base = board_keys("farnn-vs-lstm"), board_keys("farnn-13p-lstm")
    return Measured([ours[key] / base[key] for key in ("lut", "on_chip_memory_kbit")], "boards' files: LUTs, memory")


MEASURES: dict[str, Measure] = {
    "farnn-platform": _devices,
    "farnn-pcie-two-thirds": lambda: Measured(2 * CARD_LANES / XEON_LANES, "32 of 48 lanes"),
    "farnn-pcie-x8-slow": _halved,
    "farnn-pcie-x8-gain": _halved_gain,
    "farnn-vs-pes": _pes,
    "farnn-versal-logic": _logic,
    "farnn-vs-assumptions": _assumptions,
    "farnn-vs-v100": _versal,
}
