"""A sweep as a picture: the rate over the number of boards, with what limits it in shape and
colour.

A line for each combination of the other keys, with the band of its range. Points whose data have no
place are hollow; the knee has a ring.
"""

from __future__ import annotations

import itertools
import os
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ...common import one_line
from ...view import coinciding, log_ticks, nested_widths, new_figure, save_figure, whole_ticks
from .findings import limiting_kind
from .pareto import Front
from .result import Series, SweepResult

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

LineStyle: TypeAlias = Literal["-", "--", ":", "-."]
_MARKS = {
    "engine": ("o", "#0072b2"),
    "link": ("s", "#d55e00"),
    "memory": ("^", "#009e73"),
    "exchange": ("D", "#cc79a7"),
    "draining": ("v", "#e69f00"),
}
"""Shape and colour by what limits; colours that people of any colour vision tell apart, and that
print well.
"""

_OTHER_MARKS = (("P", "#000000"), ("X", "#56b4e9"), ("*", "#f0e442"))
_LINES: tuple[LineStyle, ...] = ("-", "--", ":", "-.")
_GREY = "0.35"
_GREYS = ("0.85", "0.7", "0.5", _GREY)
_BAND: dict[str, Any] = {"color": "0.5", "alpha": 0.2, "linewidth": 0}
_MOST_LABELS = 8


def draw_sweep(result: SweepResult, path: str | os.PathLike[str], flag: str = "--plot") -> None:
    """Draw a sweep into a file, whose extension sets the format.

    Raises:
        InputError: matplotlib is not installed, or the file cannot be written.
    """
    figure = new_figure(8, 4.8, flag, layout="constrained")
    axes = figure.subplots()
    marks = _marks(result.rows)
    if result.front is not None:
        _draw_front(axes, result.front, result)
        figure.suptitle(_title(result), fontsize="medium")
        save_figure(figure, path, flag, dpi=130)
        return
    if result.series:
        _draw_lines(axes, result, marks)
    else:
        _draw_bars(axes, result, marks)
    axes.set_ylabel(f"{result.noun}s/s")
    axes.grid(color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    figure.suptitle(_title(result), fontsize="medium")
    _add_legends(axes, result, marks)
    save_figure(figure, path, flag, dpi=130)


def _draw_front(axes: Axes, front: Front, result: SweepResult) -> None:
    """Draw all points by the first two objectives, the first upwards, and those of the front."""
    upwards = front.objectives[0]
    across = front.objectives[-1 if len(front.objectives) == 1 else 1]
    rows = [row for row in result.rows if row["error"] is None and row["fits"]]
    label = "front of " + ", ".join(one.name for one in front.objectives)
    line = "-" if len(front.objectives) == 2 else "none"
    for group, colour, style, said in (
        (rows, "0.7", "none", "tried"),
        (front.rows, "#0072b2", line, label),
    ):
        ends = [(across.value(row), upwards.value(row)) for row in group]
        known = sorted((x, y) for x, y in ends if x is not None and y is not None)
        places = [x for x, _ in known], [y for _, y in known]
        axes.plot(*places, marker="o", linestyle=style, color=colour, label=said)
    names = {"rate": f"{result.noun}s/s"}
    axes.set_xlabel(names.get(across.name, across.head.replace("\n", " ")))
    axes.set_ylabel(names.get(upwards.name, upwards.head.replace("\n", " ")))
    axes.grid(color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.legend(fontsize="small", loc="best")


def _marks(rows: Sequence[dict[str, Any]]) -> dict[str, tuple[str, str]]:
    """Return shape and colour of each kind that limits any point."""
    kinds = dict.fromkeys(limiting_kind(row) for row in rows if row["error"] is None)
    others = itertools.cycle(_OTHER_MARKS)
    known = [kind for kind in _MARKS if kind in kinds]
    return {kind: _MARKS.get(kind) or next(others) for kind in dict.fromkeys([*known, *kinds])}


def _draw_lines(axes: Axes, result: SweepResult, marks: dict[str, tuple[str, str]]) -> None:
    along = result.series[0].along
    lines = _lines(result)
    for place, ((series, *_), style) in enumerate(lines):
        axes.plot(*_columns(series), zorder=2 + place / len(lines), **style)
        _draw_band(axes, series)
    for series in result.series:
        for kind, (shape, colour) in marks.items():
            for fits, face in ((True, colour), (False, "white")):
                held = [
                    row for row in series.rows if limiting_kind(row) == kind and row["fits"] is fits
                ]
                values = [row[along] for row in held]
                rates = [row["images_per_s"] for row in held]
                axes.plot(
                    values,
                    rates,
                    shape,
                    color=colour,
                    markerfacecolor=face,
                    markersize=4,
                    markeredgewidth=1,
                    zorder=3,
                )
        _mark_knee(axes, series)
        _mark_memory(axes, series)
    _scale(axes, result)
    axes.set_xlabel("boards" if along == "devices" and _one_chain(result) else along)


def _draw_band(axes: Axes, series: Series) -> None:
    """Draw the range of each rate, from point to point."""
    rows = [row for row in series.rows if row.get("range_low") is not None]
    if rows:
        low = [row["range_low"] for row in rows]
        high = [row["range_high"] for row in rows]
        axes.fill_between([row[series.along] for row in rows], low, high, **_BAND)


def _lines(result: SweepResult) -> list[tuple[list[Series], dict[str, Any]]]:
    """Return the lines that can be distinguished, each with its series and its style; the widest is
    at the back.
    """
    groups = coinciding([_columns(series) for series in result.series])
    widths, greys = (
        nested_widths(min(len(groups), len(_LINES))),
        _GREYS[-min(len(groups), len(_LINES)) :],
    )
    styles = itertools.cycle(zip(_LINES, widths, greys, strict=False))
    lines: list[tuple[list[Series], dict[str, Any]]] = []
    for group, (line, width, grey) in zip(groups, styles, strict=False):
        alike = [result.series[place] for place in group]
        lines.append((alike, {"linestyle": line, "linewidth": width, "color": grey}))
    return lines


def _label(alike: Sequence[Series]) -> str:
    """Return what tells a line from others, as text: of several series, all that it stands for."""
    differing = {key for key in alike[0].others if len(set(_values(alike, key))) > 1}
    if len(differing) > 1:
        return " | ".join(_label([series]) for series in alike)
    return ", ".join(
        f"{key} = {', '.join(dict.fromkeys(map(str, _values(alike, key))))}"
        for key in alike[0].others
    )


def _values(alike: Sequence[Series], key: str) -> list[Any]:
    """Return the values of a key in several series."""
    return [series.others[key] for series in alike]


def _columns(series: Series) -> tuple[list[float], list[float]]:
    along = [row[series.along] for row in series.rows]
    return along, [row["images_per_s"] for row in series.rows]


def _one_chain(result: SweepResult) -> bool:
    return all(row["boards"] in (None, row["devices"]) for row in result.rows)


def _mark_knee(axes: Axes, series: Series) -> None:
    row = series.knee
    if row is None:
        return
    place = (row[series.along], row["images_per_s"])
    axes.plot(
        *place,
        "o",
        color="black",
        markerfacecolor="none",
        markersize=11,
        markeredgewidth=1.2,
        zorder=4,
    )
    axes.annotate(
        f"knee: {row[series.along]:g}",
        place,
        textcoords="offset points",
        xytext=(-8, 9),
        ha="right",
        fontsize="small",
    )


def _mark_memory(axes: Axes, series: Series) -> None:
    """Mark the point from which on all is on chip, if that is not the first."""
    start = series.on_chip_from
    if start is None or start == series.rows[0][series.along]:
        return
    [rate] = (row["images_per_s"] for row in series.rows if row[series.along] == start)
    axes.annotate(
        f"all on chip from {start:g}",
        (start, rate),
        textcoords="offset points",
        xytext=(10, 16),
        fontsize="small",
        arrowprops={"arrowstyle": "-", "linewidth": 0.8},
    )


def _scale(axes: Axes, result: SweepResult) -> None:
    """Choose axes by the values: logarithmic where these double and double again, otherwise from
    zero.
    """
    amounts = sorted({row[series.along] for series in result.series for row in series.rows})
    spread = amounts[0] > 0 and statistics.median(amounts) < (amounts[0] + amounts[-1]) / 4
    if spread:
        axes.set(xscale="log", yscale="log")
        axes.margins(y=0.1)  # for the label of a knee
        log_ticks(axes.xaxis)
        log_ticks(axes.yaxis)
        if len(amounts) <= 12:
            axes.set_xticks(amounts)
        return
    axes.set_ylim(
        0, 1.12 * max(row["images_per_s"] for series in result.series for row in series.rows)
    )
    axes.yaxis.set_major_formatter("{x:,.0f}" if axes.get_ylim()[1] >= 20 else "{x:g}")
    if all(isinstance(amount, int) for amount in amounts):
        whole_ticks(axes.xaxis)


def _draw_bars(axes: Axes, result: SweepResult, marks: dict[str, tuple[str, str]]) -> None:
    """Draw a bar for each point, where no key is a number."""
    names = []
    for place, row in enumerate(result.rows):
        names.append(
            "\n".join(one_line(str(row[key])) for key in result.space.varied)
            or one_line(str(row["network"]))
        )
        if row["error"] is None:
            _, colour = marks[limiting_kind(row)]
            axes.bar(
                place,
                row["images_per_s"],
                0.6,
                color=colour if row["fits"] else "white",
                edgecolor=colour,
            )
    axes.set_xticks(range(len(names)), names, fontsize="small")


def _title(result: SweepResult) -> str:
    """Return the keys that do not vary, as text."""
    row = result.rows[0]
    fixed = {}
    for key in result.space.values:
        if all(other[key] == row[key] for other in result.rows):
            fixed[key] = row[key]
    network, cluster = (
        fixed.pop(key, f"{len(result.space.values[key])} {key}s") for key in ("network", "cluster")
    )
    return ", ".join(
        [f"{network} on {cluster}", *(f"{key} = {value}" for key, value in fixed.items())]
    )


def _add_legends(axes: Axes, result: SweepResult, marks: dict[str, tuple[str, str]]) -> None:
    """Explain shapes and colours, hollow marks, lines, and the band."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Artist] = [
        Line2D([], [], linestyle="none", marker=shape, color=colour, label=f"{kind} limits")
        for kind, (shape, colour) in marks.items()
    ]
    if any(row["fits"] is False for row in result.rows):
        label = "hollow: does not fit, memory ignored"
        handles.append(
            Line2D(
                [],
                [],
                linestyle="none",
                marker="o",
                color=_GREY,
                markerfacecolor="white",
                label=label,
            )
        )
    if len(result.series) > 1:
        handles += [
            Line2D([], [], label=_label(alike), **style)
            for alike, style in _lines(result)[:_MOST_LABELS]
        ]
    if any(row.get("range_low") is not None for row in result.rows) and result.series:
        handles.append(Patch(label="range, 90 %", **_BAND))
    axes.legend(handles=handles, fontsize="small", loc="best")
