"""Charts of learning for print: curves over epochs and virtual time, distributions of values, widths of a codec."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..picture import coinciding, nested_widths, whole_ticks
from .drawn_style import GRID, LIMIT, Colours, legend_below, time_unit, times
from .parts import power_of_two

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SYMBOLS = {"circle": "o", "square": "s", "triangle": "^", "diamond": "D", "cross": "P", "star": "*"}
_MANY_EPOCHS = 40
_MARKS = 8
_SEEN_SHARE = 0.02
_MOST_POWERS = 8


def draw_curves(axes: Axes, data: dict[str, Any], colours: Colours) -> None:
    """Draw lines over epochs or virtual time; of several seeds the mean, in a band of ± its standard error."""
    is_share, by_time = data["measure"] == "accuracy", data["over"] == "virtual_time_ps"
    curves, scale = data["curves"], 100 if is_share else 1
    unit, unit_ps = time_unit(max(max(curve["x"]) for curve in curves)) if by_time else ("", 1)
    is_alone = any(curve["dashed"] for curve in curves)
    alike = coinciding([(curve["x"], times(curve["y"], 1)) for curve in curves])
    widths = {place: width for group in alike for place, width in zip(group, nested_widths(len(group)), strict=True)}
    for place, curve in enumerate(curves):
        colour, xs = colours[curve["colour"]], [x / unit_ps for x in curve["x"]]
        if "seeds" in curve:
            low, high = (times(curve[edge], scale) for edge in ("low", "high"))
            axes.fill_between(xs, low, high, color=colour, alpha=0.18, linewidth=0)
            if len(xs) == 1:
                axes.vlines(xs, low, high, color=colour, linewidth=1)
        seeds = f", n = {curve['seeds']}" if "seeds" in curve else ""
        dashes = tuple(map(float, curve["dashes"].split())) if curve["dashes"] else ()
        axes.plot(
            xs,
            times(curve["y"], scale),
            color=colour,
            linewidth=widths[place],
            linestyle=(0, (3, 2)) if curve["dashed"] else (0, dashes) if dashes else "-",
            marker="" if curve["dashed"] else _SYMBOLS[curve["symbol"]],
            markersize=3,
            markevery=_marked(len(xs), place, len(curves)),
            label=f"{curve['kind'] if is_alone else curve['run']}{seeds}",
        )
    axes.set_ylabel(f"{'' if is_alone else 'test '}{'accuracy, %' if is_share else 'loss'}")
    axes.set_xlabel(f"virtual time, {unit}" if by_time else "epoch")
    if by_time:
        axes.set_xlim(left=0)
    else:
        whole_ticks(axes.xaxis)
    axes.grid(axis="y", **GRID)
    legend_below(axes)


def _marked(count: int, place: int, curves: int) -> int | tuple[int, int]:
    """Return at which points of a line its marks are: at all, or where there are many at some, beside other lines'."""
    every = math.ceil(count / _MARKS)
    return 1 if count <= _MANY_EPOCHS else (place * every // curves, every)


def draw_histogram(axes: Axes, data: dict[str, Any], colours: Colours) -> None:
    """Draw shares of powers of two."""
    shares = [[100 * share for share in curve["shares"]] for curve in data["curves"]]
    seen = [data["least"] + i for curve in shares for i, share in enumerate(curve) if share > _SEEN_SHARE]
    first, last = min(seen, default=-1) - 1, max(seen, default=0) + 2
    if data["bound"] is not None:
        first, last = min(first, data["bound"] - 1), max(last, data["bound"] + 2)
    edges = [data["least"] + i for i in range(len(shares[-1]) + 1)]
    for curve, values in zip(data["curves"], shares, strict=True):
        is_last = curve is data["curves"][-1]
        how: dict[str, Any] = {"fill": True, "alpha": 0.6} if is_last else {"linewidth": 1.1}
        axes.stairs(values, edges, color=colours[curve["colour"]], label=curve["name"], **how)
    if data["bound"] is not None:
        axes.axvline(data["bound"], color=colours[LIMIT], linestyle="--", linewidth=0.8, label="error bound")
    axes.set_xlim(first, last)
    axes.set_xlabel(f"magnitude of a {data['of']}, log scale")
    axes.set_ylabel("share, %")
    step = max(1, math.ceil((last - first) / _MOST_POWERS))
    axes.set_xticks(range(-(-first // step) * step, last + 1, step))
    axes.xaxis.set_major_formatter(lambda value, _: power_of_two(round(value)))
    axes.grid(axis="y", **GRID)
    legend_below(axes)


def draw_widths(axes: Axes, data: dict[str, Any], colours: Colours) -> None:
    """Draw the shares of values that a codec has sent in each width, by epoch."""
    numbers = [epoch["epoch"] for epoch in data["epochs"]]
    below = [0.0] * len(numbers)
    for place, bits in enumerate(data["widths"]):
        shares = [100 * epoch["values"][place] / max(1, sum(epoch["values"])) for epoch in data["epochs"]]
        axes.bar(numbers, shares, bottom=below, color=colours[f"width-{bits}"], label=f"{bits} bits", width=0.8)
        below = [before + share for before, share in zip(below, shares, strict=True)]
    axes.set_xlabel("epoch")
    axes.set_ylabel("values, %")
    axes.set_ylim(0, 100)
    whole_ticks(axes.xaxis)
    legend_below(axes)
