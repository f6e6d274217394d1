"""The figures of FPDeep in the paper's form: 5, 10, 14, 15, and 16 if there are runs to draw."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...emulator.common import InputError, Mean
from ...emulator.run import Results, read_results
from ...emulator.studies import draw_comparison, draw_topologies
from ...emulator.view import draw_layout, new_figure, save_figure, whole_ticks
from ..pictures import Draw
from . import methods, scaling
from .evidence import IMAGES, LINK_GBPS, NETWORKS, bottleneck, comparison, idle_percent, layout

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZES = tuple(range(5, 101, 5))
_SAME = (
    "schedule",
    "devices",
    "batch",
    "samples",
    "test_samples",
    "epochs",
    "learning_rate",
    "memory",
)
"""What runs that differ by seed have in common."""

_FLAG = "--pictures"


def draw_methods(path: pathlib.Path) -> None:
    """Draw Fig. 5: FPDeep beside data and model parallelism."""
    draw_comparison(comparison(), path, _FLAG)


def draw_dimensions(path: pathlib.Path) -> None:
    """Draw Fig. 10: boards in 1D and in 2D."""
    ports = methods.PORTS
    title = f"VGG-16, CONV-3 to CONV-5, {ports.count} ports of {ports.gbps:g} Gb/s"
    pairs = [methods.pair(devices) for devices in methods.SIZES_OF_FIG_10]
    draw_topologies(title, pairs, path, flag=_FLAG)


def draw_network(name: str, path: pathlib.Path) -> None:
    """Draw Fig. 14: a network's layout."""
    draw_layout(layout(name), str(path), _FLAG)


def draw_scaling(path: pathlib.Path) -> None:
    """Draw Fig. 15: for each network the two roofs, idle stages, and epochs an hour, over the
    number of FPGAs.

    Raises:
        InputError: matplotlib is not installed, or the file cannot be written.
    """
    figure = new_figure(11, 8.4, _FLAG)
    for name, (roofs, idle, epochs) in zip(
        NETWORKS, figure.subplots(len(NETWORKS), 3), strict=True
    ):
        limits = [bottleneck(name, devices) for devices in SIZES]
        for kinds, marks, label in (
            ("engines", "o-", "engines"),
            ("links", "s--", f"links, {LINK_GBPS} Gb/s"),
        ):
            roofs.plot(
                SIZES,
                [1e12 / limit.times_ps[kinds] for limit in limits],
                marks,
                markersize=3,
                label=label,
            )
        roofs.axvline(scaling.linear_limit(name), color="grey", linewidth=0.8)
        roofs.set(
            xlabel="FPGAs",
            ylabel="images/s",
            title=name,
            ylim=(0, 1.5e12 / limits[-1].times_ps["engines"]),
        )
        idle.plot(SIZES, [idle_percent(name, devices) for devices in SIZES], "o-", markersize=3)
        idle.set(xlabel="FPGAs", ylabel="idle stages / %", ylim=(0, 5))
        rates = [scaling.images_per_s(name, devices) for devices in SIZES]
        epochs.plot(SIZES, [3600 * rate / IMAGES for rate in rates], "o-", markersize=3)
        epochs.set(xlabel="FPGAs", ylabel="epochs an hour")
        epochs.set_ylim(bottom=0)
        for axes in (roofs, idle, epochs):
            whole_ticks(axes.xaxis)
    figure.axes[0].legend()
    save_figure(figure, path, _FLAG)


def draw_convergence(runs: pathlib.Path, path: pathlib.Path) -> None:
    """Draw Fig. 16: test accuracy over epochs, a panel for each network, a curve for runs that
    differ by seed alone.

    Of several seeds, the mean with bars of one standard error; of runs that are not finished,
    nothing.

    Raises:
        InputError: `runs` has no results, matplotlib is not installed, or the file cannot be
            written.
    """
    records = [read_results(file) for file in sorted(runs.glob("*.h5"))]
    records = [record for record in records if record.epochs >= record.config["epochs"]]
    if not records:
        raise InputError(f"`--runs` {runs}: has no results files of finished runs (RUN.h5)")
    names = list(dict.fromkeys(str(record.config["network"]) for record in records))
    figure = new_figure(4 * len(names), 3.6, _FLAG)
    panels = figure.subplots(1, len(names), squeeze=False)[0]
    for name, axes in zip(names, panels, strict=True):
        _draw_runs(axes, name, [record for record in records if record.config["network"] == name])
    save_figure(figure, path, _FLAG)


def _draw_runs(axes: Axes, name: str, records: Sequence[Results]) -> None:
    curves: dict[tuple[object, ...], list[Results]] = {}
    for record in records:
        curves.setdefault(tuple(str(record.config[key]) for key in _SAME), []).append(record)
    for (schedule, devices, *_), seeds in curves.items():
        accuracies = 100 * np.array([record.history["test_accuracy"] for record in seeds])
        means = [Mean.over(column.tolist()) for column in accuracies.T]
        label = f"{schedule}, {devices} FPGAs" + (f", {len(seeds)} seeds" if len(seeds) > 1 else "")
        heights = [mean.value for mean in means]
        axes.errorbar(
            seeds[0].history["epoch"],
            heights,
            [mean.error for mean in means] if len(seeds) > 1 else None,
            fmt="o-",
            markersize=3,
            capsize=3,
            label=label,
        )
    axes.set(xlabel="epoch", ylabel="test accuracy / %", title=name)
    whole_ticks(axes.xaxis)
    axes.legend()


FIGURES: dict[str, Draw] = {
    "fig5": draw_methods,
    "fig10": draw_dimensions,
    **{f"fig14-{name}": functools.partial(draw_network, name) for name in NETWORKS},
    "fig15": draw_scaling,
}
FIGURES_OF_RUNS: dict[str, Callable[[pathlib.Path, pathlib.Path], None]] = {
    "fig16": draw_convergence
}
"""Those that show a folder of training runs."""
