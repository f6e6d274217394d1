"""Measured and emulated figures, one over the other."""

from __future__ import annotations

import pathlib

from ...emulator.view import log_ticks, new_figure, save_figure
from ..claim import load_claims
from ..run import Draw
from .hpcc import SIZES, message_ns

_RUNS = ("beff-1-fpga", "beff-2-fpgas", "beff-4-fpgas", "beff-10-fpgas")


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
