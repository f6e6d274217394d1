"""A chart of a timeline as a picture, for papers: bars of work against time, a colour for each sample."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np

from ..timeline import Chart, Span
from .picture import new_figure, save_figure

_LINE_INCHES, _WIDTH_INCHES = 0.16, 7.2
_HEIGHT = 0.9
"""Height of a line's bars; the lanes of a line share it."""

_PALE = 0.3
"""Opacity of the time from a sample's first row to its last, below the rows."""

_LEAST_SHARE, _LEAST_POINTS = 0.02, 2.5
"""Share of the width, and size of type, from which a bar has its sample's number."""


def draw_timeline(chart: Chart, path: str | os.PathLike[str]) -> None:
    """Write the picture to `path`, whose extension sets the format.

    Raises:
        InputError: matplotlib is missing, or the file cannot be written.
    """
    figure = new_figure(_WIDTH_INCHES, 0.9 + _LINE_INCHES * len(chart.lines), "plot", layout="constrained")
    from matplotlib import colormaps

    colours = colormaps["tab20"].colors  # type: ignore[attr-defined]  # a list of colours, as its name says
    axes = figure.subplots()
    for place, line in enumerate(chart.lines):
        lanes = list(dict.fromkeys(span.lane for span in line.spans))
        height = _HEIGHT / max(len(lanes), 1)
        for span in line.spans:
            low = place - _HEIGHT / 2 + height * lanes.index(span.lane)
            is_sample = span.lane.counts_samples
            colour = colours[span.number % len(colours)] if is_sample else "grey"
            start, end = _within((span.start_ps, span.end_ps), chart)
            axes.broken_barh([(start, end - start)], (low, height), color=colour, alpha=_PALE, linewidth=0)
            runs = [_within(run, chart) for run in _runs(span)]
            axes.broken_barh([(a, b - a) for a, b in runs if b > a], (low, height), color=colour, linewidth=0)
            size = min(5.0, 9 / len(lanes))
            if (
                is_sample
                and size >= _LEAST_POINTS
                and end - start > _LEAST_SHARE * _micros(chart.end_ps - chart.begin_ps)
            ):
                at = (start + end) / 2, low + height / 2
                axes.text(*at, str(span.number), ha="center", va="center_baseline", fontsize=size, clip_on=True)
    labels = [f"{line.label}, device {line.device}" for line in chart.lines]
    axes.set_yticks(range(len(labels)), labels, fontsize=6)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xlim(_micros(chart.begin_ps), _micros(chart.end_ps))
    axes.set_xlabel("virtual time, µs; numbers and colours are samples", fontsize=7)
    axes.tick_params(axis="x", labelsize=7)
    save_figure(figure, path, "plot", dpi=200)


def _runs(span: Span) -> Iterator[tuple[int, int]]:
    """Yield (begin, end) in ps of the rows that follow one another without a gap."""
    starts = span.left_ps - span.row_ps
    breaks = np.flatnonzero(starts[1:] > span.left_ps[:-1]) + 1
    for first, end in zip([0, *breaks], [*breaks, len(starts)], strict=True):
        yield int(starts[first]), int(span.left_ps[end - 1])


def _within(times_ps: tuple[int, int], chart: Chart) -> tuple[float, float]:
    """Return a stretch of time in µs, cut to that of the chart."""
    begin_ps, end_ps = (min(max(time_ps, chart.begin_ps), chart.end_ps) for time_ps in times_ps)
    return _micros(begin_ps), _micros(end_ps)


def _micros(time_ps: int) -> float:
    return time_ps / 1_000_000
