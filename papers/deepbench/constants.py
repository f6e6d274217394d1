"""Constants of the model of a recurrent step, both fitted to rows of the P100, and the GPUs' data sheets."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from ..constants import Constant

EFFICIENCY = Constant(
    "deepbench.efficiency",
    0.897,
    (0.787, 0.897, 0.907),
    "0.787 if the P100 was the one with NVLink, of 10.6 TFLOPS; 0.907 with tiles of 128x128 alone",
    "the P100's product of 5,124, 9,124 and 2,560: 8.21 TFLOPS",
)
"""Share of its peak that a multiprocessor reaches in a tile."""

LATENCY_US = Constant(
    "deepbench.latency_us",
    84.1,
    (79.2, 84.1, 87.3),
    "fitted without one or the other of the two layers",
    "the P100's two layers, each forward and backward",
)
"""Time of a step beyond its traffic and its product: launches, synchronisation, the way to a product's first result."""

CONSTANTS = (EFFICIENCY, LATENCY_US)

TILES = tuple((rows, columns) for rows in (128, 64) for columns in (128, 64, 32))
"""Tiles of cuBLAS's products. With one of 32x32 the P100's product of 2,560, 64 and 2,560 would be 50 % too fast."""


@dataclasses.dataclass(frozen=True)
class DataSheet:
    """A GPU by its data sheet: multiprocessors, peak in TFLOPS by precision, memory in GB/s."""

    multiprocessors: int
    tflops: Mapping[str, float]
    memory_gbytes_per_s: float


DATA_SHEETS = {
    "p100": DataSheet(56, {"float": 9.3}, 732),
    "v100": DataSheet(80, {"float": 14, "mixed": 112}, 900),
    "titan-xp": DataSheet(30, {"float": 12.15}, 547.7),
    "titan-x-pascal": DataSheet(28, {"float": 10.97}, 480),
    "gtx-1080-ti": DataSheet(28, {"float": 11.34}, 484),
}
"""By NVIDIA's data sheets; P100 and V100 are the PCIe boards, as emuchain's."""

VALUE_BYTES = {"float": 4, "mixed": 2}
