"""A chart as text: a column for each stretch of time, with the mark of what is worked on longest in it."""

from __future__ import annotations

import textwrap

import numpy as np
from numpy.typing import NDArray

from ..common import format_time_ps
from .spans import Chart, ChartLine, Span

_LITTLE = "."
_LEAST_COLUMNS, _MOST_OF_ONE = 10, 3


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
    columns, length = len(work), chart.end_ps - chart.begin_ps
    begin, end = ((time_ps - chart.begin_ps) * columns for time_ps in (span.start_ps, span.end_ps))
    first, last = max(begin // length, 0), min(-(-end // length), columns)
    if begin == end or first >= last:
        return
    edges = np.arange(first, last + 1, dtype=np.float64) * length
    if span.pieces_ps is None:
        done = np.clip(edges, begin, end)
    else:
        starts, ends = ((times - chart.begin_ps) * float(columns) for times in span.pieces_ps.T)
        done = np.clip(edges[:, None] - starts, 0, ends - starts).sum(1)
    share = 1.0 if span.busy_ps is None else span.busy_ps / (span.end_ps - span.start_ps)
    work[first:last] += np.diff(done) * share
