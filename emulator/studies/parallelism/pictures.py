"""The comparisons as pictures, in the form of FPDeep's Figs. 5 and 10."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ...view import log_ticks, nested_widths, new_figure, save_figure, whole_ticks
from .. import Topology
from .comparison import METRICS, Comparison

_STYLES = ("o-", "s--", "^:", "D-")


def draw_comparison(comparison: Comparison, path: str | os.PathLike[str], flag: str = "--plot") -> None:
    """Draw Fig. 5: a panel for each metric, over the number of devices.

    Raises:
        InputError: matplotlib is not installed, or the file cannot be written.
    """
    figure = new_figure(9, 6.4, flag)
    devices = {count for outcomes in comparison.outcomes.values() for count in outcomes}
    for axes, metric in zip(figure.subplots(2, 2).flat, METRICS, strict=True):
        styles = zip(_STYLES, nested_widths(len(_STYLES)), strict=True)
        for (method, outcomes), (style, width) in zip(comparison.outcomes.items(), styles, strict=True):
            values = [metric.shown(outcome) for outcome in outcomes.values()]
            axes.plot(list(outcomes), values, style, label=method.value, linewidth=width, markersize=3 + width)
        axes.set(xlabel="devices", ylabel=f"{metric.name} / {metric.unit}", xscale="log", yscale=metric.scale)
        axes.set_xticks([1 << power for power in range(max(devices).bit_length())])
        axes.xaxis.set_major_formatter("{x:.0f}")
        axes.minorticks_off()
        if metric.scale == "log":
            log_ticks(axes.yaxis)
    figure.axes[0].legend()
    workload = comparison.workload
    figure.suptitle(f"{workload.network.name} on {workload.cluster.name}, batch {workload.batch}")
    save_figure(figure, path, flag)


def draw_topologies(
    title: str,
    pairs: Sequence[tuple[Topology, Topology]],
    path: str | os.PathLike[str],
    noun: str = "image",
    flag: str = "--plot",
) -> None:
    """Draw Fig. 10: the rates of the worst link in 1D and in 2D, and of the slowest engine, over the number of devices.

    Raises:
        InputError: matplotlib is not installed, or the file cannot be written.
    """
    figure = new_figure(6, 3.8, flag)
    axes = figure.subplots()
    devices = [one.devices for one, _ in pairs]
    *widths, narrow = nested_widths(3)
    for index, (name, style) in enumerate((("1D", "o-"), ("2D", "s--"))):
        rates, width = [pair[index].worst_link_images_per_s for pair in pairs], widths[index]
        axes.plot(devices, rates, style, label=f"worst link, {name}", linewidth=width, markersize=3 + width)
    axes.plot(devices, [one.compute_images_per_s for one, _ in pairs], "k:", label="slowest engine", linewidth=narrow)
    axes.set(xlabel="devices", ylabel=f"{noun}s/s", yscale="log")
    whole_ticks(axes.xaxis)
    log_ticks(axes.yaxis)
    axes.legend()
    figure.suptitle(title)
    save_figure(figure, path, flag)
