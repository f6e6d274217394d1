"""HPCC FPGA's b_eff, STREAM, GEMM and PTRANS on 520N boards
(https://github.com/pc2/hpcc_fpga_eval_21, MIT, 690d38c).

b_eff sends a message each way between neighbours, one after the other; emuchain's ring of two
workers does so with the halves of a gradient. STREAM moves bytes of off-chip memory, GEMM
multiplies, and PTRANS does what is slowest of reading A and B, writing C, and sending A over the
links.
"""

from __future__ import annotations

import pathlib

import numpy as np

from ...comm.exchange import ring_ps
from ...emulator.cluster import Cluster, is_settable, load_cluster
from ...emulator.common import plural
from ...emulator.view import log_ticks, new_figure, save_figure
from ...kernels.number import FP32
from ..claim import Measured, constants_of, load_claims
from ..constants import in_use
from ..pictures import Draw

SIZES = tuple(2**power for power in range(6, 21))
"""Bytes of b_eff's messages from 64, which whole values and whole words of the links carry."""

_TRANSPOSE_ARRAYS = 3
"""A and B are read, and C is written."""
_RUNS = ("beff-1-fpga", "beff-2-fpgas", "beff-4-fpgas", "beff-10-fpgas")
_PAIRS_OF_PORTS = 2
"""PTRANS sends over all four serial ports, of which b_eff's messages use two."""


def _boards() -> Cluster:
    """Return the boards of 520n.toml, with the constants that were fitted."""
    fitted = {
        constant.key: in_use(constant)
        for constant in constants_of("hardware")
        if is_settable(constant.key)
    }
    return load_cluster(str(pathlib.Path(__file__).parent / "520n.toml"), fitted)


def message_ns() -> Measured:
    """Return the time of each of b_eff's messages, as half of what two workers take to exchange a
    gradient of two.
    """
    network = _boards().interconnect.among(2)
    ready = np.zeros(2, np.int64)
    # A ring of two takes two steps, hence half; and 1,000 ps are a nanosecond.
    times = [
        float(ring_ps(network, ready, 2 * size // FP32.bytes_of(1)).max()) / 2000 for size in SIZES
    ]
    return Measured(times, "64 B to 1 MiB, by a ring of 2 workers")


def stream_gbytes_per_s(fpgas: int) -> Measured:
    """Return the rate at which boards move STREAM's arrays, each in its own memory: that of all
    four functions.
    """
    return Measured(
        [fpgas * _boards().board(0).off_chip_mbytes_per_s / 1000] * 4, "copy, scale, add, triad"
    )


def product_s(rows: int) -> Measured:
    """Return the time in which a board multiplies two square matrices of `rows` rows."""
    board = _boards().board(0)
    return Measured(
        rows**3 / board.multipliers * board.period_ps / 1e12, f"{board.multipliers} multipliers"
    )


def transpose_s(rows: int, fpgas: int) -> Measured:
    """Return the time in which boards add the transpose of a matrix to another one: a roofline."""
    cluster = _boards()
    own_bytes = FP32.bytes_of(rows**2) / fpgas
    memory_s = _TRANSPOSE_ARRAYS * own_bytes / (cluster.board(0).off_chip_mbytes_per_s * 1e6)
    link_s = own_bytes * 8 / (_PAIRS_OF_PORTS * cluster.link.bandwidth_mbps * 1e6)
    slowest = "links" if link_s > memory_s else "memory"
    return Measured(max(memory_s, link_s), f"{plural(fpgas, 'board')}; {slowest} limit")


def _messages(path: pathlib.Path) -> None:
    """Draw b_eff's times over the size of messages, and what emuchain's deviate by."""
    figure = new_figure(7, 5, "--pictures", layout="constrained")
    times, shares = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    ours = message_ns().ours
    times.plot(SIZES, ours, color="black", linewidth=1, label="emuchain")
    for run, mark in zip(_RUNS, "osD^", strict=True):
        measured = load_claims("hardware")[f"hardware-{run}"].value
        boards = run.partition("-")[2].replace("-", " ").replace("fpga", "FPGA")
        times.plot(SIZES, measured, mark, markersize=4, label=boards)
        deviations = [100 * (time / other - 1) for time, other in zip(ours, measured, strict=True)]
        shares.plot(SIZES, deviations, f"{mark}-", markersize=4, linewidth=0.6)
    times.set(xscale="log", yscale="log", ylabel="time of a message / ns")
    shares.set(xlabel="size of a message / bytes", ylabel="deviation / %")
    for axis in (times.yaxis, shares.xaxis):
        log_ticks(axis)
    times.legend(fontsize="small")
    for axes in (times, shares):
        axes.grid(color="0.9", linewidth=0.6)
    save_figure(figure, path, "--pictures")


FIGURES: dict[str, Draw] = {"b_eff": _messages}
