"""HPCC FPGA's b_eff, STREAM, GEMM and PTRANS on 520N boards (https://github.com/pc2/hpcc_fpga_eval_21, MIT, 690d38c).

b_eff sends a message each way between neighbours, one after the other; emuchain's ring of two workers does so with
the halves of a gradient. STREAM moves bytes of off-chip memory, GEMM multiplies, and PTRANS does what is slowest of
reading A and B, writing C, and sending A over the links.
"""

from __future__ import annotations

import pathlib

import numpy as np

from ...comm.exchange import ring_ps
from ...emulator.cluster import Cluster, load_cluster
from ...emulator.common import plural
from ...kernels.number import FP32
from ..claim import Measured
from ..constants import in_use
from .constants import BANDWIDTH, EFFICIENCY, LATENCY, MEMORY

SIZES = tuple(2**power for power in range(6, 21))
"""Bytes of b_eff's messages from 64, which whole values and whole words of the links carry."""

_TRANSPOSE_ARRAYS = 3
"""A and B are read, and C is written."""
_PAIRS_OF_PORTS = 2
"""PTRANS sends over all four serial ports, of which b_eff's messages use two."""


def _boards() -> Cluster:
    """Return the boards of 520n.toml, with the constants that were fitted."""
    fitted = {constant.key: in_use(constant) for constant in (BANDWIDTH, LATENCY, MEMORY, EFFICIENCY)}
    return load_cluster(str(pathlib.Path(__file__).parent / "520n.toml"), fitted)


def message_ns() -> Measured:
    """Return the time of each of b_eff's messages, as half of what two workers take to exchange a gradient of two."""
    network = _boards().interconnect.among(2)
    ready = np.zeros(2, np.int64)
    times = [float(ring_ps(network, ready, 2 * size // FP32.bytes_of(1)).max()) / 2000 for size in SIZES]
    return Measured(times, "64 B to 1 MiB, by a ring of 2 workers")


def stream_gbytes_per_s(fpgas: int) -> Measured:
    """Return the rate at which boards move STREAM's arrays, each in its own memory: that of all four functions."""
    return Measured([fpgas * _boards().board(0).off_chip_mbytes_per_s / 1000] * 4, "copy, scale, add, triad")


def product_s(rows: int) -> Measured:
    """Return the time in which a board multiplies two square matrices of `rows` rows."""
    board = _boards().board(0)
    return Measured(rows**3 / board.multipliers * board.period_ps / 1e12, f"{board.multipliers} multipliers")


def transpose_s(rows: int, fpgas: int) -> Measured:
    """Return the time in which boards add the transpose of a matrix to another one: a roofline."""
    cluster = _boards()
    own_bytes = FP32.bytes_of(rows**2) / fpgas
    memory_s = _TRANSPOSE_ARRAYS * own_bytes / (cluster.board(0).off_chip_mbytes_per_s * 1e6)
    link_s = own_bytes * 8 / (_PAIRS_OF_PORTS * cluster.link.bandwidth_mbps * 1e6)
    slowest = "links" if link_s > memory_s else "memory"
    return Measured(max(memory_s, link_s), f"{plural(fpgas, 'board')}; {slowest} limit")


FUNCTIONS = {
    "message_ns": message_ns,
    "stream_gbytes_per_s": stream_gbytes_per_s,
    "product_s": product_s,
    "transpose_s": transpose_s,
}
