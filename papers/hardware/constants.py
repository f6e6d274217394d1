"""Constants fitted to some rows of measured hardware, with the ranges that `emuchain calibrate` gives them."""

from __future__ import annotations

from ..constants import Constant

BANDWIDTH = Constant(
    "link.bandwidth_gbps",
    79.4,
    (78.08, 79.4, 80.76),
    "`emuchain calibrate link` on three runs of b_eff, 63 rows",
    "b_eff's runs on 1, 2 and 4 FPGAs",
)
"""Of two serial ports of a 520N, each direction."""

LATENCY = Constant(
    "link.latency_ns",
    673.8,
    (662.9, 673.8, 685.7),
    "the same",
    "b_eff's runs on 1, 2 and 4 FPGAs",
)

MEMORY = Constant(
    "board.off_chip_gbytes_per_s",
    66.63,
    (64.78, 66.63, 68.53),
    "`emuchain calibrate board` on one run of STREAM and one of GEMM, on one FPGA",
    "STREAM on one FPGA",
)
"""Four banks of DDR4-2400, 76.8 GB/s by their data sheet."""

EFFICIENCY = Constant(
    "board.efficiency",
    0.8834,
    (0.8732, 0.8834, 0.8937),
    "the same",
    "GEMM on one FPGA",
)
"""Share of the cycles in which GEMM's 2,560 multipliers work."""

MAC_FS = Constant(
    "p40.mac_fs",
    158.8,
    (150.0, 158.8, 166.0),
    "with ELEMENT_FS within 5 % of both rows",
    "ResNet-101 on one GPU, and on two",
)
"""Time of a multiply-accumulate on a Tesla P40, in femtoseconds: 6.3 TMAC/s."""

ELEMENT_FS = Constant(
    "p40.element_fs",
    39_738,
    (37_700, 39_738, 41_700),
    "with MAC_FS within 5 % of both rows",
    "ResNet-101 on one GPU, and on two",
)
"""Time of a value that a layer produces, in femtoseconds; its memory, of 346 GB/s, moves 8 bytes in 23,000."""

CONSTANTS = (BANDWIDTH, LATENCY, MEMORY, EFFICIENCY, MAC_FS, ELEMENT_FS)
