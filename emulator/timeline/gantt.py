"""A chart as text: a line for each of its lines, a column for each stretch of time, and a mark for each sample."""

from __future__ import annotations

import itertools
import string
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from ..common import format_time_ps
from .chart import Chart, Line
from .span import Span

MARKS = string.digits + string.ascii_lowercase + string.ascii_uppercase
_LITTLE, _EXCHANGE = ".", "="
_MOST_LABEL = 32
LEAST_COLUMNS = 10


def gantt(chart: Chart, width: int) -> list[str]:
    """Return the lines of a chart, at most `width` columns wide if there is room for ten columns beside the labels.

    A column has the mark of the sample with the longest work in it, a dot if there is work for less than half of it.
    """
    labels = [line.label[:_MOST_LABEL] for line in chart.lines]
    ahead = 2 if chart.all_lanes else len(f"device {chart.lines[-1].device} ")
    indent = ahead + max(map(len, labels))
    columns = max(width - indent - 1, LEAST_COLUMNS)
    edges = np.linspace(chart.begin_ps, chart.end_ps, columns + 1)
    return [
        f"{'':{indent}} {axis(chart.begin_ps, chart.end_ps, columns)}",
        *_rows(chart, indent, edges),
        f"column: {format_time_ps(round((chart.end_ps - chart.begin_ps) / columns))};"
        " marks: samples 0-9 a-z A-Z in turn; dot: busy for under half",
    ]


def _rows(chart: Chart, indent: int, edges: NDArray[np.float64]) -> Iterator[str]:
    for device, lines in itertools.groupby(chart.lines, key=lambda line: line.device):
        if chart.all_lanes:
            yield f"device {device} ({chart.timeline.board(device)})"
        for place, line in enumerate(lines):
            ahead = "  " if chart.all_lanes else f"device {device}" if place == 0 else ""
            label = line.label[:_MOST_LABEL]
            label = f"{ahead}{label}" if chart.all_lanes else f"{ahead:{indent - len(label)}}{label}"
            yield f"{label:{indent}} {_cells(line, edges)}".rstrip()


def axis(begin_ps: int, end_ps: int, columns: int) -> str:
    """Return the line above a chart: where it begins and ends."""
    begin, end = format_time_ps(begin_ps), format_time_ps(end_ps)
    return f"{begin}{end:>{max(columns - len(begin), len(end) + 1)}}"


def marked(works: Mapping[str, NDArray[np.float64]], edges: NDArray[np.float64]) -> str:
    """Return the mark of each column: of the longest work in it, a dot for less than half of it, or a blank."""
    if not works:
        return ""
    marks, of_marks = list(works), np.array(list(works.values()))
    half = (edges[1] - edges[0]) / 2
    longest = of_marks.argmax(0)
    return "".join(
        " " if total <= 0 else _LITTLE if total < half else marks[longest[column]]
        for column, total in enumerate(of_marks.sum(0))
    )


def _cells(line: Line, edges: NDArray[np.float64]) -> str:
    works: dict[str, NDArray[np.float64]] = {}
    for span in sorted(line.spans, key=lambda span: span.number):
        mark = MARKS[span.number % len(MARKS)] if span.lane.counts_samples else _EXCHANGE
        works[mark] = works.get(mark, 0) + _busy_ps(span, edges)
    return marked(works, edges)


def _busy_ps(span: Span, edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the work of a span between each pair of edges."""
    starts = span.left_ps - span.row_ps
    done: NDArray[np.float64] = np.clip(edges[:, None] - starts, 0, span.row_ps).sum(1)
    return np.diff(done)
