"""DeepBench's measured steps and ours."""

from __future__ import annotations

import pathlib

from ...emulator.view import log_ticks, new_figure, save_figure
from ..run import Draw
from .constants import DATA_SHEETS
from .model import steps_us
from .table import rows


def _steps(path: pathlib.Path) -> None:
    """Draw our times of a step over the measured ones, with the diagonal."""
    figure = new_figure(5, 4.5, "--pictures", layout="constrained")
    axes = figure.subplots()
    for gpu, mark in zip(DATA_SHEETS, "osD^v", strict=True):
        pairs = [
            pair for row in rows().values() if row.gpu == gpu for pair in zip(row.step_us, steps_us(row), strict=True)
        ]
        measured, ours = zip(*pairs, strict=True)
        axes.plot(measured, ours, mark, markersize=5, label=f"{gpu} (fitted)" if gpu == "p100" else gpu)
    axes.plot((10, 1000), (10, 1000), color="0.6", linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlabel="measured time of a step / us", ylabel="ours / us")
    for axis in (axes.xaxis, axes.yaxis):
        log_ticks(axis)
    axes.legend(fontsize="small")
    axes.grid(color="0.9", linewidth=0.6)
    save_figure(figure, path, "--pictures")


FIGURES: dict[str, Draw] = {"steps": _steps}
