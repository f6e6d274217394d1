"""FARNN's Figs. 2 and 6 to 14, from our results."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...emulator.timing.pair import Cell, PairTimes, Part
from ...emulator.view import draw_chart, new_figure, pair_chart, save_figure
from ..pictures import Draw
from . import runs, synthetic
from .applications import (
    DS2_BATCHES,
    ENCODERS,
    POWER,
    RNNT_BATCHES,
    ds2_time_ratio,
    rnnt_time_ratio,
    versal_gains,
)
from .runs import FARNN

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Bars = Mapping[str, Sequence[PairTimes]]
"""The runs of each bar, by its group's name."""

_WIDTH, _HEIGHT = 9, 3.6
_SERIES = ("cuDNN-Std", "cuDNN-PD", "FARNN-9P", "FARNN-13P")
_FORWARD, _BACKWARD = (
    ("#bbbbbb", "#8fb3d9", "#7bc6a4", "#f2b56b"),
    ("#777777", "#3b76af", "#2d8f68", "#d5862a"),
)


def _four(cell: Cell, **keys: int) -> list[PairTimes]:
    """Return a synthetic benchmark on each of the four platforms."""
    workload = runs.synthetic(cell, **keys)
    alone = [runs.timed(workload, "p100", form) for form in (runs.STANDARD, runs.PERSISTENT_FORM)]
    return [*alone, *(runs.timed(workload, FARNN[build, cell]) for build in ("9P", "13P"))]


def _stacked(axes: Axes, groups: Bars, series: Sequence[str], title: str) -> None:
    """Draw FW and, above it, BW with GC and WU, as shares of the first bar of each group."""
    width = 0.8 / len(series)
    for place, bars in enumerate(groups.values()):
        unit = bars[0].mini_batch_ps
        for column, run in enumerate(bars):
            left = place + (column - (len(series) - 1) / 2) * width
            forward, backward = run.forward_ps / unit, run.backward_ps / unit
            axes.bar(left, forward, width, color=_FORWARD[column])
            axes.bar(left, backward, width, bottom=forward, color=_BACKWARD[column])
    for column, name in enumerate(series):
        axes.bar(0, 0, color=_BACKWARD[column], label=name)
    axes.set_xticks(range(len(groups)), list(groups), fontsize=7)
    axes.tick_params(axis="y", labelsize=7)
    axes.margins(y=0.25)  # room for the legend
    axes.set_title(title, fontsize=8)


def _both(path: pathlib.Path, lstm: Bars, gru: Bars, axis: str) -> None:
    figure = new_figure(_WIDTH, _HEIGHT, "--pictures", layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, groups, title in zip(panels, (lstm, gru), ("LSTM", "GRU"), strict=True):
        _stacked(axes, groups, _SERIES, title)
        axes.set_xlabel(axis, fontsize=7)
    panels[0].set_ylabel("time over cuDNN-Std's; pale: FW, full: BW, GC, WU", fontsize=7)
    panels[1].legend(fontsize=7)
    save_figure(figure, path, "--pictures")


def draw_throughput(path: pathlib.Path) -> None:
    """Draw Fig. 2: what the P100 does of I-MVM and R-MVM."""
    batches = (1, 2, 4, 8, 16, 32, 64)
    figure = new_figure(_WIDTH / 2, _HEIGHT, "--pictures")
    axes = figure.subplots()
    for part, name in ((Part.INPUTS, "I-MVM"), (Part.STEPS, "R-MVM")):
        axes.plot(
            batches,
            [synthetic.gpu_tflops(batch, part) for batch in batches],
            marker="o",
            label=name,
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks(batches, [*map(str, batches)])
    axes.set_xlabel("batch")
    axes.set_ylabel("TFLOPS of a P100")
    axes.legend(fontsize=8)
    save_figure(figure, path, "--pictures")


def draw_timeline(path: pathlib.Path) -> None:
    """Draw Fig. 6: tasks and transfers of three layers."""
    run = runs.timed(runs.synthetic(Cell.LSTM, steps=400, layers=3), FARNN["9P", Cell.LSTM])
    draw_chart(
        pair_chart(run, "three layers of LSTM-1024, 400 steps, FARNN-9P"), path, "--pictures"
    )


def draw_cells(path: pathlib.Path) -> None:
    """Draw Fig. 7: numbers of cells."""
    lstm = {f"{cells:,}": _four(Cell.LSTM, cells=cells) for cells in (256, 512, 768, 1024)}
    gru = {f"{cells:,}": _four(Cell.GRU, cells=cells) for cells in (256, 512, 1024, 1280)}
    _both(path, lstm, gru, "cells")


def draw_lengths(path: pathlib.Path) -> None:
    """Draw Fig. 8: lengths of sequences."""
    lstm = {f"{steps:,}": _four(Cell.LSTM, steps=steps) for steps in synthetic.LENGTHS}
    gru = {f"{steps:,}": _four(Cell.GRU, steps=steps) for steps in synthetic.LENGTHS}
    _both(path, lstm, gru, "steps")


def draw_batches(path: pathlib.Path) -> None:
    """Draw Fig. 9: sizes of mini-batches."""
    lstm = {str(batch): _four(Cell.LSTM, batch=batch) for batch in synthetic.BATCHES}
    gru = {str(batch): _four(Cell.GRU, batch=batch) for batch in synthetic.BATCHES}
    _both(path, lstm, gru, "batch")


def draw_configurations(path: pathlib.Path) -> None:
    """Draw Fig. 10: FARNN, without overlap, and with all of FW and BW on the FPGA."""
    figure = new_figure(_WIDTH / 2, _HEIGHT, "--pictures")
    axes = figure.subplots()
    workload = runs.synthetic(Cell.LSTM, steps=synthetic.FIG_10_STEPS)
    schedules = ("farnn", "farnn-no-overlap", "farnn-all-fpga")
    groups = {}
    for build in ("9P", "13P"):
        cluster = FARNN[build, Cell.LSTM]
        groups[f"FARNN-{build}"] = [runs.timed(workload, cluster, name) for name in schedules]
    _stacked(axes, groups, schedules, "LSTM, 800 steps: time over FARNN's")
    axes.legend(fontsize=7)
    save_figure(figure, path, "--pictures")


def draw_deep_speech(path: pathlib.Path) -> None:
    """Draw Fig. 11: recurrent layers of Deep Speech 2."""

    def groups(cell: Cell) -> dict[str, list[PairTimes]]:
        bars = {}
        for batch in DS2_BATCHES:
            workload = runs.deep_speech(cell, batch)
            alone = [
                runs.timed(workload, "p100", form) for form in (runs.STANDARD, runs.PERSISTENT_FORM)
            ]
            pairs = [runs.timed(workload, FARNN[build, cell]) for build in ("9P", "13P")]
            bars[str(batch)] = [*alone, *pairs]
        return bars

    _both(path, groups(Cell.LSTM), groups(Cell.GRU), "batch")


def draw_encoder(path: pathlib.Path) -> None:
    """Draw Fig. 12: RNN-T's encoder."""
    figure = new_figure(_WIDTH / 2, _HEIGHT, "--pictures")
    axes = figure.subplots()
    bars = {}
    for batch in RNNT_BATCHES:
        encoder = runs.encoder(batch)
        pairs = [runs.timed(encoder, cluster) for cluster in ENCODERS.values()]
        bars[str(batch)] = [runs.timed(encoder, "p100", runs.STANDARD), *pairs]
    _stacked(axes, bars, ("cuDNN-Std", "FARNN-9P", "FARNN-13P"), "encoder: time over cuDNN-Std's")
    axes.set_xlabel("batch", fontsize=7)
    axes.legend(fontsize=7)
    save_figure(figure, path, "--pictures")


def draw_energy(path: pathlib.Path) -> None:
    """Draw Fig. 13: power, energy and energy-delay product over the GPU's, with the published power
    of one row.
    """
    ratios = {f"DS2 LSTM, batch {batch}": ds2_time_ratio(batch) for batch in DS2_BATCHES}
    ratios |= {f"DS2 GRU, batch {batch}": ds2_time_ratio(batch, Cell.GRU) for batch in DS2_BATCHES}
    ratios |= {f"RNN-T, batch {batch}": rnnt_time_ratio(batch) for batch in RNNT_BATCHES}
    figure = new_figure(_WIDTH, _HEIGHT, "--pictures")
    axes = figure.subplots()
    for column, (name, power) in enumerate(
        (("power", 0), ("energy", 1), ("energy-delay product", 2))
    ):
        left = [place + 0.27 * (column - 1) for place in range(len(ratios))]
        axes.bar(left, [POWER * ratio**power for ratio in ratios.values()], 0.27, label=name)
    axes.axhline(1, color="0.3", linewidth=0.8)
    axes.set_xticks(range(len(ratios)), list(ratios), rotation=45, ha="right", fontsize=7)
    axes.set_ylabel("FARNN-9P over the GPU alone", fontsize=8)
    axes.legend(fontsize=7)
    save_figure(figure, path, "--pictures")


def draw_versal(path: pathlib.Path) -> None:
    """Draw Fig. 14: FARNN-VS beside a V100."""
    gains = versal_gains()
    figure = new_figure(_WIDTH, _HEIGHT, "--pictures")
    axes = figure.subplots()
    axes.bar(range(len(gains)), list(gains.values()), color=_BACKWARD[2])
    axes.axhline(0, color="0.3", linewidth=0.8)
    axes.set_xticks(range(len(gains)), list(gains), rotation=45, ha="right", fontsize=7)
    axes.set_ylabel("less time than the V100, %", fontsize=8)
    save_figure(figure, path, "--pictures")


FIGURES: dict[str, Draw] = {
    "fig2": draw_throughput,
    "fig6": draw_timeline,
    "fig7": draw_cells,
    "fig8": draw_lengths,
    "fig9": draw_batches,
    "fig10": draw_configurations,
    "fig11": draw_deep_speech,
    "fig12": draw_encoder,
    "fig13": draw_energy,
    "fig14": draw_versal,
}
