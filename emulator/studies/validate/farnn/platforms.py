"""FARNN's sections 6.1, 6.7 and 6.8: the devices, half the PCIe lanes, and a Versal beside a V100."""

from __future__ import annotations

from ....cluster import Gpu, board_keys
from ....pair import Cell, Workload
from ..constants import changed, in_force
from ..measure import Measure, Measured
from . import runs
from .chains import array
from .constants import PCIE_GBPS, in_use
from .runs import FARNN, deep_speech, encoder, persistent_ps, reduction, standard_ps, time_ps

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
    cluster, base = runs.cluster("farnn-vs"), runs.cluster("farnn-13p")
    gpu = cluster.board(0)
    assert isinstance(gpu, Gpu)
    same = cluster.link == base.link, array("farnn-vs").activation_cycles == array("farnn-13p").activation_cycles
    return Measured([gpu.name, *same], "GPU; the same link and activations as FARNN-13P")


def _devices() -> Measured:
    cluster = runs.cluster("farnn-9p")
    return Measured([cluster.board(0).name, cluster.board(1).name], "clusters/farnn-9p.toml")


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
