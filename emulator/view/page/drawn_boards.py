"""Charts of boards and links for print: busy shares, rates, demand on links, memory, the first samples' timeline."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..picture import log_ticks, whole_ticks
from .drawn_style import GRID, LIMIT, Colours, legend_below, time_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
    mesh = axes.pcolormesh(shares, cmap=shades, vmin=0, vmax=100, edgecolors="#dfe3e8", linewidth=0.3, rasterized=False)
    if devices <= _FEW_DEVICES // 2:
        for row, line in enumerate(shares):
            for device, share in enumerate(line):
                shown = "–" if math.isnan(share) else f"{share:.0f}"
                ink = "#ffffff" if share > 60 else "#1b2430"
                axes.text(device + 0.5, row + 0.5, shown, ha="center", va="center", color=ink)
    step = max(1, math.ceil(devices / _FEW_DEVICES))
    axes.set_xticks([device + 0.5 for device in range(0, devices, step)], [str(d) for d in range(0, devices, step)])
    axes.set_yticks([row + 0.5 for row in range(len(columns))], columns)
    axes.tick_params(length=0)
    axes.invert_yaxis()
    axes.set_xlabel("device")
    figure = axes.get_figure()
    if figure is not None:
        figure.colorbar(mesh, ax=axes, label="busy, % of the run")


def draw_roofs(axes: Axes, data: dict[str, Any], colours: Colours) -> None:
    """Draw the rates that engines, links and exchanges allow, on a logarithmic axis, and those reached."""
    kinds = data["kinds"]
    shapes = {"FP": "o", "EB": "s", "PG": "D", "link": "^"}
    apart = 0.56 / max(1, len(kinds) - 1)
    for place, kind in enumerate(kinds):
        points = [point for point in data["points"] if point["kind"] == kind]
        beside = [0 if point["device"] % 1 else place * apart - 0.28 for point in points]
        axes.scatter(
            [point["device"] + shift for point, shift in zip(points, beside, strict=True)],
            [point["rate"] for point in points],
            s=9,
            color=colours.get(f"kind-{kind}", colours["other"]),
            marker=shapes.get(kind, "P"),
            linewidths=0,
            label=kind,
        )
    axes.axhline(data["steady"], color=colours[LIMIT], linewidth=0.8, label="steady state")
    if data["reached"] is not None:
        axes.axhline(data["reached"], color=colours[LIMIT], linewidth=0.8, linestyle="--", label="reached")
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
    for is_right, name, colour in ((True, "to the right", "link-right"), (False, "to the left", "link-left")):
        bars = [bar for bar in data["bars"] if bar["right"] is is_right]
        places = [bar["link"] + (-0.2 if is_right else 0.2) for bar in bars]
        axes.bar(places, [bar["demand"] for bar in bars], width=0.38, color=colours[colour], label=name)
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
        axes.bar(devices, sizes, bottom=below, width=0.72, color=colours[part["colour"]], label=part["name"])
        below = [before + size for before, size in zip(below, sizes, strict=True)]
    limits = [(device["device"], device["board"] / _MIB) for device in data["devices"]]
    _limit(axes, limits, max(below), "board", "MiB", colours)
    whole_ticks(axes.xaxis)
    axes.set_xlabel("device")
    axes.set_ylabel("on-chip memory, MiB")
    axes.grid(axis="y", **GRID)
    legend_below(axes)


def _limit(axes: Axes, limits: list[tuple[int, float]], most: float, name: str, unit: str, colours: Colours) -> None:
    """Draw each bar's limit above it, or write the lowest limit as text where all are far above."""
    least = min(limit for _, limit in limits)
    if most < _FAR * least:
        text = f"{name}: {least:.4g} {unit}, above this scale"
        axes.text(1, 1, text, transform=axes.transAxes, ha="right", va="bottom")
        return
    for place, (where, limit) in enumerate(limits):
        label = "" if place else name
        axes.hlines(limit, where - 0.45, where + 0.45, color=colours[LIMIT], linewidth=0.9, label=label)


def draw_gantt(axes: Axes, data: dict[str, Any], colours: Colours) -> None:
    """Draw bars of engines over time: a band for each device, in it a lane for each kind, and in that each slice."""
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
            axes.broken_barh(spans, (low, share), facecolors=colour, alpha=0.5 if is_odd else 0.95, linewidth=0)
    for kind in kinds:
        axes.broken_barh([], (0, 0), facecolors=colours.get(f"kind-{kind}", colours["other"]), label=kind)
    axes.set_xlim(0, data["window_ps"] / unit_ps)
    axes.set_ylim(data["devices"], 0)
    step = max(1, math.ceil(data["devices"] / _FEW_DEVICES))
    numbers = range(0, data["devices"], step)
    axes.set_yticks([number + 0.5 for number in numbers], [str(number) for number in numbers])
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(f"virtual time, {unit}")
    axes.set_ylabel("device")
    legend_below(axes)
