"""Times of exchanges as a picture: over the number of workers, a line for each way, with and without compression."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ..view import log_ticks, nested_widths, new_figure, save_figure
from .exchange import ExchangeTimes

_WAYS = {
    "ring_ps": ("ring", "o", "#0072b2"),
    "aggregator_ps": ("aggregator", "s", "#d55e00"),
    "rings_under_aggregator_ps": ("rings, aggregator", "^", "#009e73"),
    "rings_of_rings_ps": ("rings, ring", "D", "#cc79a7"),
}
_MOST_TICKS = 12


def draw_exchanges(
    title: str, times: Sequence[ExchangeTimes], path: str | os.PathLike[str], flag: str = "--plot"
) -> None:
    """Draw exchange times into a file, whose extension sets the format.

    Raises:
        InputError: matplotlib is not installed, or the file cannot be written.
    """
    figure = new_figure(7, 4.6, flag, layout="constrained")
    axes, widths = figure.subplots(), iter(nested_widths(2 * len(_WAYS)))
    for ratio in dict.fromkeys(row.ratio for row in times):
        rows = [row for row in times if row.ratio == ratio]
        compressed = "" if ratio is None else f", compressed {ratio:g}:1"
        for field, (name, shape, colour) in _WAYS.items():
            axes.plot(
                [row.workers for row in rows],
                [getattr(row, field) / 1e9 for row in rows],
                shape,
                linestyle="-" if ratio is None else "--",
                color=colour,
                markerfacecolor=colour if ratio is None else "white",
                markersize=5,
                linewidth=next(widths),
                label=f"{name}{compressed}",
            )
    axes.set(xscale="log", yscale="log", xlabel="workers", ylabel="time of an exchange / ms")
    log_ticks(axes.yaxis)
    workers = sorted({row.workers for row in times})
    log_ticks(axes.xaxis)
    if len(workers) <= _MOST_TICKS:
        axes.set_xticks(workers)
    axes.grid(color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.legend(fontsize="small")
    figure.suptitle(title, fontsize="medium")
    save_figure(figure, path, flag)
