"""The charts of a page as figures for print: a PDF and an SVG of a column's width for each, always
the same.

First what all figures share (size and type, the page's colours, legends), then charts of boards and
links, then those of learning; `_DRAWN` says which draws what.
"""

from __future__ import annotations

import contextlib
import math
import pathlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...common import InputError, own_folder
from ..picture import coinciding, log_ticks, nested_widths, new_figure, save_figure, whole_ticks
from .parts import TIME_UNITS_PS, Chart, Page, power_of_two

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_MADE_BY = "emuchain report"
_FORMATS = ("pdf", "svg")
_LONGEST_NAME = 80
_LEGEND_ROW, _ROOFS_HEIGHT = 0.068, 1.2


def draw_figures(page: Page, folder: pathlib.Path) -> list[pathlib.Path]:
    """Draw the charts of a page into a folder, each as PDF and as SVG; return their paths.

    Figures of an earlier report are replaced; the same page gives the same files.

    Raises:
        InputError: matplotlib is not installed, a file cannot be written, or one of this name is no
            such figure.
    """
    colours, drawn = page_colours(), []
    charts = dict(_named(page))
    with column_figure(), own_folder(folder, FLAG):
        paths = {}
        for name in charts:
            paths[name] = [folder / f"{name}.{form}" for form in _FORMATS]
        for path in (path for of_chart in paths.values() for path in of_chart):
            _check_own(path)
        for name, chart in charts.items():
            with column_figure(_height(chart)) as (figure, axes):
                _, draw = _DRAWN[chart.kind]
                draw(axes, chart.data, colours)
                for path in paths[name]:
                    save_figure(figure, path, FLAG, creator=_MADE_BY)
                    drawn.append(path)
    return drawn


def _named(page: Page) -> Iterator[tuple[str, Chart]]:
    """Yield the charts of a page by names of files; those of several runs begin with the run's."""
    for section in page.shared:
        for chart in section.charts:
            yield _kind_name(chart), chart
    names = [re.sub(r"[^\w.+-]+", "-", part.name).strip("-.")[:_LONGEST_NAME] for part in page.runs]
    counts = Counter(names)
    for place, (part, name) in enumerate(zip(page.runs, names, strict=True), 1):
        own = name if counts[name] == 1 else f"{name}-{place}"
        for section in part.sections:
            for chart in section.charts:
                yield (
                    _kind_name(chart) if len(page.runs) == 1 else f"{own}-{_kind_name(chart)}",
                    chart,
                )


def _kind_name(chart: Chart) -> str:
    if chart.kind == "curves":
        over = "virtual-time" if chart.data["over"] == "virtual_time_ps" else "epochs"
        return f"{chart.data['measure']}-over-{over}"
    return f"{chart.data['of']}s" if chart.kind == "histogram" else _DRAWN[chart.kind][0]


def _height(chart: Chart) -> float:
    """Return how high a figure is, over the usual height: more where it has many devices, or a long
    legend.
    """
    if chart.kind == "gantt":
        return max(1.0, 0.5 + chart.data["devices"] / 12)
    if chart.kind == "curves":
        names = [f"{curve['run']}, n = 0" for curve in chart.data["curves"]]
        return 1 + _LEGEND_ROW * (math.ceil(len(names) / legend_columns(names)) - 1)
    return _ROOFS_HEIGHT if chart.kind == "roofs" else 1


def _check_own(path: pathlib.Path) -> None:
    """Check that a file that is there is a figure of a report.

    Raises:
        InputError: it is another file.
    """
    try:
        is_own = not path.exists() or (path.is_file() and _MADE_BY.encode() in path.read_bytes())
    except OSError as error:
        raise InputError(f"`{FLAG}`: {path}: cannot be read: {error.strerror}") from None
    if not is_own:
        raise InputError(
            f"`{FLAG}`: {path}: is there already, and no figure of `{_MADE_BY}`, so it is not"
            " replaced; move it away, or give another folder"
        )


Colours = Mapping[str, str]
"""Colours of the page's light scheme, by their names in its style sheet."""

FLAG = "--figures"
LIMIT = "limit"
GRID: dict[str, Any] = {"color": "#dfe3e8", "linewidth": 0.5}
_WIDTH_IN, _HEIGHT_IN, _POINTS = 3.5, 2.3, 8
"""A column of a paper with two, and the size of its type."""
_STYLE = {
    "font.size": _POINTS,
    "axes.titlesize": _POINTS,
    "axes.labelsize": _POINTS,
    "xtick.labelsize": _POINTS,
    "ytick.labelsize": _POINTS,
    "legend.fontsize": _POINTS,
    "axes.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "pdf.fonttype": 42,  # publishers take no Type 3
}
_COLOUR = re.compile(r"--([\w-]+): (#\w{6});")
_IN_A_LINE = 40


@contextlib.contextmanager
def column_figure(height: float = 1) -> Iterator[tuple[Figure, Axes]]:
    """Yield a figure of a column's width with axes, `height` times as high as usual, in the same
    style everywhere.

    Raises:
        InputError: matplotlib is not installed.
    """
    new_figure(1, 1, FLAG)  # says if there is no matplotlib
    from matplotlib import style

    with style.context(["default", _STYLE], after_reset=True):
        figure = new_figure(_WIDTH_IN, _HEIGHT_IN * height, FLAG, layout="constrained")
        yield figure, figure.subplots()


def page_colours() -> Colours:
    """Return the colours of the page's light scheme."""
    text = (pathlib.Path(__file__).parent / "static/page.css").read_text(encoding="utf-8")
    return dict(_COLOUR.findall(text.partition("}")[0]))


def legend_below(axes: Axes) -> None:
    """Put a legend below axes, in as many columns as its names leave room for."""
    handles, names = axes.get_legend_handles_labels()
    figure = axes.get_figure()
    if names and figure is not None:
        columns = legend_columns(names)
        figure.legend(
            handles,
            names,
            loc="outside lower center",
            ncols=columns,
            frameon=False,
            columnspacing=1.2,
        )


def legend_columns(names: Sequence[str]) -> int:
    """Return in how many columns a legend's names have room."""
    return max(1, min(len(names), 4, _IN_A_LINE // (max(map(len, names)) + 5)))


def times(values: Sequence[float | None], scale: float) -> list[float]:
    """Return values times `scale`; NaN for None."""
    return [math.nan if value is None else value * scale for value in values]


def time_unit(longest_ps: float) -> tuple[str, int]:
    """Return the largest unit of which a time has at least two, and its length in ps."""
    return next(
        (unit for unit in reversed(TIME_UNITS_PS.items()) if longest_ps >= 2 * unit[1]), ("ps", 1)
    )


_MIB = 2**20
_FEW_DEVICES = 16
_FAR = 0.1
"""Where no bar reaches this share of its limit, the limit is written as text."""


def draw_heat(axes: Axes, data: dict[str, Any], colours: Colours) -> None:
    """Draw the busy share of each device's engines and links, a line of cells for each."""
    from matplotlib.colors import LinearSegmentedColormap

    columns = data["columns"]
    devices = 1 + max(cell["device"] for cell in data["cells"])
    shares = [[math.nan] * devices for _ in columns]
    for cell in data["cells"]:
        if cell["share"] is not None:
            shares[columns.index(cell["of"])][cell["device"]] = 100 * cell["share"]
    shades = LinearSegmentedColormap.from_list("busy", ["#ffffff", colours["kind-FP"]])
    mesh = axes.pcolormesh(
        shares, cmap=shades, vmin=0, vmax=100, edgecolors="#dfe3e8", linewidth=0.3, rasterized=False
    )
    if devices <= _FEW_DEVICES // 2:
        for row, line in enumerate(shares):
            for device, share in enumerate(line):
                shown = "–" if math.isnan(share) else f"{share:.0f}"
                ink = "#ffffff" if share > 60 else "#1b2430"
                axes.text(device + 0.5, row + 0.5, shown, ha="center", va="center", color=ink)
    step = max(1, math.ceil(devices / _FEW_DEVICES))
    numbers = np.arange(0, devices, step)
    axes.set_xticks(numbers + 0.5, [*map(str, numbers)])
    axes.set_yticks([row + 0.5 for row in range(len(columns))], columns)
    axes.tick_params(length=0)
    axes.invert_yaxis()
    axes.set_xlabel("device")
    figure = axes.get_figure()
    if figure is not None:
        figure.colorbar(mesh, ax=axes, label="busy, % of the run")


def draw_roofs(axes: Axes, data: dict[str, Any], colours: Colours) -> None:
    """Draw the rates that engines, links and exchanges allow, on a logarithmic axis, and those
    reached.
    """
    kinds = data["kinds"]
    shapes = {"FP": "o", "EB": "s", "PG": "D", "link": "^"}
    apart = 0.56 / max(1, len(kinds) - 1)
    for place, kind in enumerate(kinds):
        points = [point for point in data["points"] if point["kind"] == kind]
        # Engines of a device stand side by side; links, halfway between two devices, have room.
        beside = [0 if point["device"] % 1 else place * apart - 0.28 for point in points]
        places = [point["device"] + shift for point, shift in zip(points, beside, strict=True)]
        axes.scatter(
            places,
            [point["rate"] for point in points],
            s=9,
            color=colours.get(f"kind-{kind}", colours["other"]),
            marker=shapes.get(kind, "P"),
            linewidths=0,
            label=kind,
        )
    axes.axhline(data["steady"], color=colours[LIMIT], linewidth=0.8, label="steady state")
    if data["reached"] is not None:
        axes.axhline(
            data["reached"], color=colours[LIMIT], linewidth=0.8, linestyle="--", label="reached"
        )
    axes.set_yscale("log")
    axes.margins(y=0.1)
    log_ticks(axes.yaxis)
    whole_ticks(axes.xaxis)
    axes.grid(axis="y", **GRID)
    axes.set_xlabel("device")
    axes.set_ylabel(f"{data['unit']}, log scale")
    legend_below(axes)


def draw_demand(axes: Axes, data: dict[str, Any], colours: Colours) -> None:
    """Draw the demand on links, a bar for each direction, against their bandwidth."""
    for is_right, name, colour in (
        (True, "to the right", "link-right"),
        (False, "to the left", "link-left"),
    ):
        bars = [bar for bar in data["bars"] if bar["right"] is is_right]
        places = [bar["link"] + (-0.2 if is_right else 0.2) for bar in bars]
        axes.bar(
            places, [bar["demand"] for bar in bars], width=0.38, color=colours[colour], label=name
        )
    most = max(bar["demand"] for bar in data["bars"])
    limits = [(bar["link"], bar["bandwidth"]) for bar in data["bars"] if bar["right"]]
    _limit(axes, limits, most, "bandwidth", "Gb/s", colours)
    links = 1 + max(bar["link"] for bar in data["bars"])
    step = max(1, math.ceil(links / 8))
    axes.set_xticks(range(0, links, step), [f"{link}–{link + 1}" for link in range(0, links, step)])
    axes.set_xlabel("between devices")
    axes.set_ylabel("demand, Gb/s")
    axes.grid(axis="y", **GRID)
    legend_below(axes)


def draw_memory(axes: Axes, data: dict[str, Any], colours: Colours) -> None:
    """Draw the on-chip memory of each device, stacked, against that of its board."""
    devices = [device["device"] for device in data["devices"]]
    below = [0.0] * len(devices)
    for part in data["parts"]:
        sizes = [device["bytes"].get(part["name"], 0) / _MIB for device in data["devices"]]
        axes.bar(
            devices,
            sizes,
            bottom=below,
            width=0.72,
            color=colours[part["colour"]],
            label=part["name"],
        )
        below = [before + size for before, size in zip(below, sizes, strict=True)]
    limits = [(device["device"], device["board"] / _MIB) for device in data["devices"]]
    _limit(axes, limits, max(below), "board", "MiB", colours)
    whole_ticks(axes.xaxis)
    axes.set_xlabel("device")
    axes.set_ylabel("on-chip memory, MiB")
    axes.grid(axis="y", **GRID)
    legend_below(axes)


def _limit(
    axes: Axes, limits: list[tuple[int, float]], most: float, name: str, unit: str, colours: Colours
) -> None:
    """Draw each bar's limit above it, or write the lowest limit as text where all are far above."""
    least = min(limit for _, limit in limits)
    if most < _FAR * least:
        text = f"{name}: {least:.4g} {unit}, above this scale"
        axes.text(1, 1, text, transform=axes.transAxes, ha="right", va="bottom")
        return
    for place, (where, limit) in enumerate(limits):
        label = "" if place else name
        axes.hlines(
            limit, where - 0.45, where + 0.45, color=colours[LIMIT], linewidth=0.9, label=label
        )


def draw_gantt(axes: Axes, data: dict[str, Any], colours: Colours) -> None:
    """Draw bars of engines over time: a band for each device, in it a lane for each kind, and in
    that each slice.
    """
    unit, unit_ps = time_unit(data["window_ps"])
    kinds, lanes = data["kinds"], data["lanes"]
    alike = {(lane["device"], lane["kind"]): 0 for lane in lanes}
    for lane in lanes:
        alike[lane["device"], lane["kind"]] += 1
    high = 0.88 / len(kinds)
    for place, lane in enumerate(lanes):
        share = 0.92 * high / alike[lane["device"], lane["kind"]]
        low = lane["device"] + 0.06 + high * kinds.index(lane["kind"]) + share * lane["number"]
        bars = [bar for bar in zip(*data["bars"], strict=True) if bar[0] == place]
        for is_odd in (False, True):
            spans = [
                (begin / unit_ps, (end - begin) / unit_ps)
                for _, number, begin, end in bars
                if (number % 2 == 1) is is_odd
            ]
            colour = colours.get(f"kind-{lane['kind']}", colours["other"])
            axes.broken_barh(
                spans, (low, share), facecolors=colour, alpha=0.5 if is_odd else 0.95, linewidth=0
            )
    for kind in kinds:
        axes.broken_barh(
            [], (0, 0), facecolors=colours.get(f"kind-{kind}", colours["other"]), label=kind
        )
    axes.set_xlim(0, data["window_ps"] / unit_ps)
    axes.set_ylim(data["devices"], 0)
    step = max(1, math.ceil(data["devices"] / _FEW_DEVICES))
    numbers = np.arange(0, data["devices"], step)
    axes.set_yticks(numbers + 0.5, [*map(str, numbers)])
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(f"virtual time, {unit}")
    axes.set_ylabel("device")
    legend_below(axes)


_SYMBOLS = {
    "circle": "o",
    "square": "s",
    "triangle": "^",
    "diamond": "D",
    "cross": "P",
    "star": "*",
}
_MANY_EPOCHS = 40
_MARKS = 8
_SEEN_SHARE = 0.02
_MOST_POWERS = 8


def draw_curves(axes: Axes, data: dict[str, Any], colours: Colours) -> None:
    """Draw lines over epochs or virtual time; of several seeds the mean, in a band of ± its
    standard error.
    """
    is_share, by_time = data["measure"] == "accuracy", data["over"] == "virtual_time_ps"
    curves, scale = data["curves"], 100 if is_share else 1
    unit, unit_ps = time_unit(max(max(curve["x"]) for curve in curves)) if by_time else ("", 1)
    is_alone = any(curve["dashed"] for curve in curves)
    # Curves that cannot be distinguished are drawn within one another, so that each shows.
    alike = coinciding([(curve["x"], times(curve["y"], 1)) for curve in curves])
    widths = {
        place: width
        for group in alike
        for place, width in zip(group, nested_widths(len(group)), strict=True)
    }
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
    """Return at which points of a line its marks are: at all, or where there are many at some,
    beside other lines'.
    """
    every = math.ceil(count / _MARKS)
    return 1 if count <= _MANY_EPOCHS else (place * every // curves, every)


def draw_histogram(axes: Axes, data: dict[str, Any], colours: Colours) -> None:
    """Draw shares of powers of two."""
    shares = []
    for curve in data["curves"]:
        shares.append([100 * share for share in curve["shares"]])
    seen = [
        data["least"] + i
        for curve in shares
        for i, share in enumerate(curve)
        if share > _SEEN_SHARE
    ]
    first, last = min(seen, default=-1) - 1, max(seen, default=0) + 2
    if data["bound"] is not None:
        first, last = min(first, data["bound"] - 1), max(last, data["bound"] + 2)
    edges = [data["least"] + i for i in range(len(shares[-1]) + 1)]
    for curve, values in zip(data["curves"], shares, strict=True):
        is_last = curve is data["curves"][-1]
        how: dict[str, Any] = {"fill": True, "alpha": 0.6} if is_last else {"linewidth": 1.1}
        axes.stairs(values, edges, color=colours[curve["colour"]], label=curve["name"], **how)
    if data["bound"] is not None:
        axes.axvline(
            data["bound"], color=colours[LIMIT], linestyle="--", linewidth=0.8, label="error bound"
        )
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
        shares = [
            100 * epoch["values"][place] / max(1, sum(epoch["values"])) for epoch in data["epochs"]
        ]
        axes.bar(
            numbers,
            shares,
            bottom=below,
            color=colours[f"width-{bits}"],
            label=f"{bits} bits",
            width=0.8,
        )
        below = [before + share for before, share in zip(below, shares, strict=True)]
    axes.set_xlabel("epoch")
    axes.set_ylabel("values, %")
    axes.set_ylim(0, 100)
    whole_ticks(axes.xaxis)
    legend_below(axes)


_DRAWN: dict[str, tuple[str, Callable[..., None]]] = {
    "curves": ("", draw_curves),
    "roofs": ("rates", draw_roofs),
    "heat": ("utilisation", draw_heat),
    "demand": ("links", draw_demand),
    "memory": ("memory", draw_memory),
    "histogram": ("", draw_histogram),
    "widths": ("widths", draw_widths),
    "gantt": ("timeline", draw_gantt),
}
"""The name of a figure, and what draws it, by the kind of its chart."""
