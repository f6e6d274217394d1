"""A chart as text and as a picture: lines of spans against time, with the marks, colours and numbers of their work."""

from __future__ import annotations

import collections
import os
import textwrap
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...common import format_time_ps
from ..picture import new_figure, save_figure
from .spans import Chart, ChartLine, Lane, Look, Span

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_MOST_INCHES = 40.0
_PALE = 0.3
"""Opacity of the time from the first to the last of a span's pieces, below these."""

_LEAST_SHARE, _LEAST_POINTS, _MOST_POINTS = 0.02, 2.5, 9
"""Share of the width, and size of type, from which a box has its text; the size of all texts on a line's height."""

_LITTLE = "."
_LEAST_COLUMNS, _MOST_OF_ONE = 10, 3


def draw_chart(chart: Chart, path: str | os.PathLike[str], flag: str = "--plot") -> None:
    """Write a chart to `path`, whose extension sets the format; an error names `flag` as what asked for it.

    Raises:
        InputError: matplotlib is missing, or the file cannot be written.
    """
    style, lines = chart.style, [line for line in chart.lines if line.spans is not None]
    height = min(style.others_inches + style.line_inches * len(lines), _MOST_INCHES)
    figure = new_figure(style.width_inches, height, flag, layout="constrained")
    from matplotlib import rc_context
    from matplotlib.patches import Patch

    axes = figure.subplots()
    for place, line in enumerate(lines):
        if style.idle:
            whole = _stretch(chart, chart.begin_ps, chart.end_ps)
            axes.broken_barh([whole], (place - style.bar / 2, style.bar), color=style.idle, linewidth=0)
        _draw_line(axes, chart, line, place)
    points = 7 if chart.keys else 6
    axes.set_yticks(range(len(lines)), [line.label for line in lines], fontsize=points)
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.set_xlim(chart.begin_ps / chart.unit_ps, chart.end_ps / chart.unit_ps)
    axes.set_xlabel(chart.axis, fontsize=7, loc="left" if chart.keys else "center")
    axes.tick_params(axis="x", labelsize=7)
    if chart.rule_ps is not None:
        axes.axvline(chart.rule_ps / chart.unit_ps, color="0.3", linewidth=0.8, linestyle=":")
    if chart.keys:
        axes.tick_params(axis="y", length=0)
        axes.spines[:].set_visible(False)
        patches = [Patch(facecolor=colour, label=meaning) for meaning, colour in chart.keys.items()]
        figure.legend(handles=patches, loc="outside lower right", ncols=len(patches), fontsize=7, frameon=False)
    if chart.title:
        axes.set_title(chart.title, fontsize=8, loc="left")
    with rc_context({"svg.fonttype": "none", "font.sans-serif": ["DejaVu Sans"]}):  # text as text, and short
        save_figure(figure, path, flag, dpi=style.dpi)


def _draw_line(axes: Axes, chart: Chart, line: ChartLine, place: int) -> None:
    """Draw the boxes of a line, which its lanes share, those of one look at once."""
    lanes = list(dict.fromkeys(span.lane for span in line.spans or ()))
    height = chart.style.bar / max(len(lanes), 1)
    boxes, pale = (collections.defaultdict[tuple[Lane, Look], list[tuple[float, float]]](list) for _ in range(2))
    for span in line.spans or ():
        middle = place - chart.style.bar / 2 + height * (lanes.index(span.lane) + 0.5)
        key = span.lane, span.look._replace(mark="", text="")
        whole = _stretch(chart, span.start_ps, span.end_ps)
        if span.pieces_ps is None:
            boxes[key].append(whole)
        else:
            pale[key].append(whole)
            pieces = (_stretch(chart, int(begin_ps), int(end_ps)) for begin_ps, end_ps in span.pieces_ps)
            boxes[key] += [(begin, width) for begin, width in pieces if width > 0]
        _write(axes, chart, span.look.text, whole, middle, min(chart.style.points, _MOST_POINTS / len(lanes)))
    for drawn, alpha in ((pale, _PALE), (boxes, 1.0)):
        for (lane, look), stretches in drawn.items():
            middle, high = place - chart.style.bar / 2 + height * (lanes.index(lane) + 0.5), height * look.height
            axes.broken_barh(
                stretches,
                (middle - high / 2, high),
                facecolor=look.colour,
                alpha=alpha,
                hatch=look.hatch,
                edgecolor="white",
                linewidth=chart.style.edge if look.height == 1 else 0,
            )


def _write(axes: Axes, chart: Chart, text: str, stretch: tuple[float, float], middle: float, points: float) -> None:
    """Write the text of a box, where it has room."""
    whole = (chart.end_ps - chart.begin_ps) / chart.unit_ps
    digits = chart.style.digit_inches * len(text) / (chart.style.width_inches - 1)
    begin, width = stretch
    if text and points >= _LEAST_POINTS and width >= (digits or _LEAST_SHARE) * whole:
        at = begin + width / 2, middle
        axes.text(*at, text, ha="center", va="center_baseline", fontsize=points)


def _stretch(chart: Chart, begin_ps: int, end_ps: int) -> tuple[float, float]:
    """Return the begin and the width of a stretch of time in the chart's unit, cut to that of the chart."""
    begin_ps, end_ps = (min(max(time_ps, chart.begin_ps), chart.end_ps) for time_ps in (begin_ps, end_ps))
    return begin_ps / chart.unit_ps, (end_ps - begin_ps) / chart.unit_ps


def gantt(chart: Chart, width: int) -> list[str]:
    """Return the lines of a chart below its axis and above the meaning of its columns and marks.

    They are at most `width` columns wide if there is room for ten columns of time beside the titles.
    """
    columns = _columns(chart, width)
    begin, end = format_time_ps(chart.begin_ps), format_time_ps(chart.end_ps)
    column = format_time_ps(round((chart.end_ps - chart.begin_ps) / columns))
    return [
        f"{'':{_indent(chart)}} {begin}{end:>{max(columns - len(begin), len(end) + 1)}}",
        *gantt_lines(chart, width),
        f"column: {column}; {chart.marks}dot: busy for under half",
        *textwrap.wrap(chart.notes, width, subsequent_indent="  "),
    ]


def gantt_lines(chart: Chart, width: int) -> list[str]:
    """Return the lines of a chart alone.

    A column has the mark with the longest work in it, a dot if there is work for less than half of it.
    """
    indent, columns = _indent(chart), _columns(chart, width)
    return [f"{line.title:{indent}} {_marks(chart, line, columns)}".rstrip() for line in chart.lines]


def _indent(chart: Chart) -> int:
    return max(len(line.title) for line in chart.lines if line.spans is not None)


def _columns(chart: Chart, width: int) -> int:
    """Return the number of columns: where there is room, such that all times are multiples of a column's."""
    room = max(width - _indent(chart) - 1, _LEAST_COLUMNS)
    slots = (chart.end_ps - chart.begin_ps) // chart.grid_ps if chart.grid_ps else room + 1
    return min(room // slots, _MOST_OF_ONE) * slots if slots <= room else room


def _marks(chart: Chart, line: ChartLine, columns: int) -> str:
    works: dict[str, NDArray[np.float64]] = {}
    for span in line.spans or ():
        work = works.setdefault(span.look.mark, np.zeros(columns))
        _add_work(work, chart, span)
    if not works:
        return ""
    marks, length = list(works), chart.end_ps - chart.begin_ps
    longest, sums = np.argmax(list(works.values()), axis=0), np.sum(list(works.values()), axis=0)
    return "".join(
        chart.idle if total <= 0 else _LITTLE if 2 * total < length else marks[place]
        for place, total in zip(longest, sums, strict=True)
    )


def _add_work(work: NDArray[np.float64], chart: Chart, span: Span) -> None:
    """Add the work of a span in each column, in parts of a ps, as many as columns: whole numbers, so exact."""
    # The chart's `length` ps are length * columns parts, so a column has `length` of them, and no edge is rounded:
    #   columns  |    0    |    1    |    2    |
    #   span         [####____####______###]        #: pieces, which alone are work; without any, all of it is
    columns, length = len(work), chart.end_ps - chart.begin_ps
    begin, end = ((time_ps - chart.begin_ps) * columns for time_ps in (span.start_ps, span.end_ps))
    first, last = max(begin // length, 0), min(-(-end // length), columns)
    if begin == end or first >= last:
        return
    if last == first + 1 and span.pieces_ps is None and span.busy_ps is None:
        work[first] += min(end, last * length) - max(begin, first * length)
        return
    edges = np.arange(first, last + 1, dtype=np.float64) * length
    if span.pieces_ps is None:
        done = np.clip(edges, begin, end)
    else:
        starts, ends = ((times - chart.begin_ps) * float(columns) for times in span.pieces_ps.T)
        done = np.clip(edges[:, None] - starts, 0, ends - starts).sum(1)
    share = 1.0 if span.busy_ps is None else span.busy_ps / (span.end_ps - span.start_ps)
    work[first:last] += np.diff(done) * share
