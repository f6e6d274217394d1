"""Spans and flows: what each lane of a run did when, and what fed what; and a chart of them, as
text and as a picture.

Three adapters make them: of rows on engines (`rows`), of whole actions (`actions`), of the tasks of
a GPU with an FPGA (`tasks`). A trace and charts show them, whoever made them.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import os
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...common import format_bytes, format_time_ps
from ...timing import Course
from ..picture import new_figure, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclasses.dataclass(frozen=True)
class Lane:
    """A line of a timeline on which one thing is done at a time: an engine, a queue of actions, a
    link of `device`.
    """

    device: int
    title: str


class Look(NamedTuple):
    """How a span is drawn: its mark as text; in a picture its colour, its text, hatching, share of
    a line's height.
    """

    mark: str
    colour: str
    text: str = ""
    hatch: str | None = None
    height: float = 1.0


@dataclasses.dataclass(frozen=True, eq=False)
class Span:
    """The work of a lane on one thing, from `start_ps` to `end_ps`.

    `label`, `category` and `args` are those of its slice in a trace. `pieces_ps` (n, 2) are the
    times in between in which the lane was busy, where it was not all the time. Where only `busy_ps`
    of the time is known, it is evenly spread.
    """

    lane: Lane
    start_ps: int
    end_ps: int
    label: str
    category: str
    args: Mapping[str, Any]
    look: Look
    pieces_ps: NDArray[np.int64] | None = None
    busy_ps: int | None = None


class Flow(NamedTuple):
    """An arrow from the span on lane `source` at `leaves_ps` to the one on `target` at
    `enters_ps`.
    """

    source: Lane
    leaves_ps: int
    target: Lane
    enters_ps: int


@dataclasses.dataclass(frozen=True, eq=False)
class Timeline:
    """A run's devices by name, their lanes in the order in which they are shown, and what happened
    on these.

    `micro_ps` is shown as a microsecond: where times are in a user's unit, that unit.
    """

    devices: Sequence[str]
    lanes: Sequence[Lane]
    spans: Iterable[Span]
    flows: Iterable[Flow]
    micro_ps: int = 10**6


@dataclasses.dataclass(frozen=True, eq=False)
class ChartLine:
    """A line of a chart: its title as text and in a picture, and its spans; a heading, in text
    alone, has None.
    """

    title: str
    label: str
    spans: Sequence[Span] | None


class Style(NamedTuple):
    """Sizes of a picture: its width, the height of a line and of what is around all lines, in
    inches; `bar` of a line.

    A span has its text if it is wide enough, `digit_inches` for each digit; `edge` is the width of
    the white line around it. Where nothing is done, lines have the colour `idle`.
    """

    width_inches: float
    line_inches: float
    others_inches: float
    bar: float = 0.9
    points: float = 5.0
    digit_inches: float = 0.0
    edge: float = 0.0
    idle: str = ""
    dpi: int = 200


_OF_ROWS = Style(7.2, 0.16, 0.9)


@dataclasses.dataclass(frozen=True, eq=False)
class Chart:
    """Lines from `begin_ps` to `end_ps`.

    As text: `marks` says what marks mean, or below all `notes` do; `idle` stands where nothing is
    done, and where all times are multiples of `grid_ps`, columns are parts of it. In a picture:
    `axis` is the title of the time axis, whose unit is `unit_ps`, `keys` gives colours their
    meanings, a rule stands at `rule_ps`, and below all lines is what each device of `courses` keeps
    over time.
    """

    lines: Sequence[ChartLine]
    begin_ps: int
    end_ps: int
    axis: str
    marks: str = ""
    notes: str = ""
    unit_ps: int = 10**6
    idle: str = " "
    grid_ps: int | None = None
    title: str = ""
    keys: Mapping[str, str] = dataclasses.field(default_factory=dict)
    rule_ps: int | None = None
    style: Style = _OF_ROWS
    courses: Sequence[Course] = ()


def lines_by_device(
    lines: Iterable[tuple[int, str, Sequence[Span]]], label: str
) -> Iterator[ChartLine]:
    """Yield the lines of a chart from (device, what, spans), with the device named on its first
    line.

    `label` is the title in a picture, with places for `device` and `what`.
    """
    given = list(lines)
    ahead = len(f"device {given[-1][0]}")
    width = max(len(what) for _, what, _ in given)
    for device, group in itertools.groupby(given, key=lambda line: line[0]):
        for place, (_, what, spans) in enumerate(group):
            name = f"device {device}" if place == 0 else ""
            title = f"{name:{ahead + 1 + width - len(what)}}{what}" if width else name
            yield ChartLine(title, label.format(device=device, what=what).strip(), spans)


_MOST_INCHES = 40.0
_COURSE_INCHES = 0.4
"""Height of what is around the courses of a chart."""
_COURSE = "#8d7bb5"
_PALE = 0.3
"""Opacity of the time from the first to the last of a span's pieces, below these."""

_LEAST_SHARE, _LEAST_POINTS, _MOST_POINTS = 0.02, 2.5, 9
"""Share of the width, and size of type, from which a box has its text; the size of all texts on a
line's height.
"""

_LITTLE = "."
_LEAST_COLUMNS, _MOST_OF_ONE = 10, 3


def draw_chart(chart: Chart, path: str | os.PathLike[str], flag: str = "--plot") -> None:
    """Write a chart to `path`, whose extension sets the format; an error names `flag` as what asked
    for it.

    Raises:
        InputError: matplotlib is missing, or the file cannot be written.
    """
    style, lines = chart.style, [line for line in chart.lines if line.spans is not None]
    height = style.others_inches + style.line_inches * (len(lines) + len(chart.courses))
    height += _COURSE_INCHES * bool(chart.courses)
    figure = new_figure(style.width_inches, min(height, _MOST_INCHES), flag, layout="constrained")
    from matplotlib import rc_context
    from matplotlib.patches import Patch

    if chart.courses:
        ratios = [len(lines), len(chart.courses)]
        axes, lowest = figure.subplots(2, 1, sharex=True, height_ratios=ratios)
        draw_courses(lowest, chart.courses, chart.end_ps, chart.unit_ps, chart.style.bar)
    else:
        axes = lowest = figure.subplots()
    for place, line in enumerate(lines):
        if style.idle:
            whole = _stretch(chart, chart.begin_ps, chart.end_ps)
            axes.broken_barh(
                [whole], (place - style.bar / 2, style.bar), color=style.idle, linewidth=0
            )
        _draw_line(axes, chart, line, place)
    points = 7 if chart.keys else 6
    axes.set_yticks(range(len(lines)), [line.label for line in lines], fontsize=points)
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.set_xlim(chart.begin_ps / chart.unit_ps, chart.end_ps / chart.unit_ps)
    lowest.set_xlabel(chart.axis, fontsize=7, loc="left" if chart.keys else "center")
    lowest.tick_params(axis="x", labelsize=7)
    if chart.rule_ps is not None:
        axes.axvline(chart.rule_ps / chart.unit_ps, color="0.3", linewidth=0.8, linestyle=":")
    if chart.keys:
        axes.tick_params(axis="y", length=0)
        axes.spines[:].set_visible(False)
        patches = [Patch(facecolor=colour, label=meaning) for meaning, colour in chart.keys.items()]
        figure.legend(
            handles=patches,
            loc="outside lower right",
            ncols=len(patches),
            fontsize=7,
            frameon=False,
        )
    if chart.title:
        axes.set_title(chart.title, fontsize=8, loc="left")
    with rc_context(
        {"svg.fonttype": "none", "font.sans-serif": ["DejaVu Sans"]}
    ):  # text as text, and short
        save_figure(figure, path, flag, dpi=style.dpi)


def draw_courses(
    axes: Axes, courses: Sequence[Course], end_ps: int, unit_ps: int = 10**6, bar: float = 0.9
) -> None:
    """Draw what each device keeps over time up to `end_ps`, one below the other, all to one scale;
    `bar` is the share of a device's line that the most of them takes.
    """
    most, labels = max(course.peak_bytes for course in courses), []
    for place, course in enumerate(courses):
        labels.append(f"device {place}: {format_bytes(course.peak_bytes)}")
        if not course.peak_bytes:
            continue
        # The last amount lasts until the end of the chart.
        times = [time_ps / unit_ps for time_ps in (*course.times_ps, end_ps)]
        base = place + bar / 2
        tops = [base - bar * kept / most for kept in (*course.kept_bytes, course.kept_bytes[-1])]
        axes.fill_between(times, base, tops, step="post", color=_COURSE, linewidth=0)
    axes.set_yticks(range(len(labels)), labels, fontsize=7)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.spines[:].set_visible(False)
    axes.set_title("features kept, and the most of each device", fontsize=7, loc="left")


def _draw_line(axes: Axes, chart: Chart, line: ChartLine, place: int) -> None:
    """Draw the boxes of a line, which its lanes share, those of one look at once."""
    lanes = list(dict.fromkeys(span.lane for span in line.spans or ()))
    height = chart.style.bar / max(len(lanes), 1)
    boxes, pale = (
        collections.defaultdict[tuple[Lane, Look], list[tuple[float, float]]](list)
        for _ in range(2)
    )
    for span in line.spans or ():
        middle = place - chart.style.bar / 2 + height * (lanes.index(span.lane) + 0.5)
        key = span.lane, span.look._replace(mark="", text="")
        whole = _stretch(chart, span.start_ps, span.end_ps)
        if span.pieces_ps is None:
            boxes[key].append(whole)
        else:
            pale[key].append(whole)
            pieces = (
                _stretch(chart, int(begin_ps), int(end_ps)) for begin_ps, end_ps in span.pieces_ps
            )
            boxes[key] += [(begin, width) for begin, width in pieces if width > 0]
        _write(
            axes,
            chart,
            span.look.text,
            whole,
            middle,
            min(chart.style.points, _MOST_POINTS / len(lanes)),
        )
    for drawn, alpha in ((pale, _PALE), (boxes, 1.0)):
        for (lane, look), stretches in drawn.items():
            middle, high = (
                place - chart.style.bar / 2 + height * (lanes.index(lane) + 0.5),
                height * look.height,
            )
            axes.broken_barh(
                stretches,
                (middle - high / 2, high),
                facecolor=look.colour,
                alpha=alpha,
                hatch=look.hatch,
                edgecolor="white",
                linewidth=chart.style.edge if look.height == 1 else 0,
            )


def _write(
    axes: Axes, chart: Chart, text: str, stretch: tuple[float, float], middle: float, points: float
) -> None:
    """Write the text of a box, where it has room."""
    whole = (chart.end_ps - chart.begin_ps) / chart.unit_ps
    digits = chart.style.digit_inches * len(text) / (chart.style.width_inches - 1)
    begin, width = stretch
    if text and points >= _LEAST_POINTS and width >= (digits or _LEAST_SHARE) * whole:
        at = begin + width / 2, middle
        axes.text(*at, text, ha="center", va="center_baseline", fontsize=points)


def _stretch(chart: Chart, begin_ps: int, end_ps: int) -> tuple[float, float]:
    """Return the begin and the width of a stretch of time in the chart's unit, cut to that of the
    chart.
    """
    begin_ps, end_ps = (
        min(max(time_ps, chart.begin_ps), chart.end_ps) for time_ps in (begin_ps, end_ps)
    )
    return begin_ps / chart.unit_ps, (end_ps - begin_ps) / chart.unit_ps


def gantt(chart: Chart, width: int) -> list[str]:
    """Return the lines of a chart below its axis and above the meaning of its columns and marks.

    They are at most `width` columns wide if there is room for ten columns of time beside the
    titles.
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

    A column has the mark with the longest work in it, a dot if there is work for less than half of
    it.
    """
    indent, columns = _indent(chart), _columns(chart, width)
    return [
        f"{line.title:{indent}} {_marks(chart, line, columns)}".rstrip() for line in chart.lines
    ]


def _indent(chart: Chart) -> int:
    return max(len(line.title) for line in chart.lines if line.spans is not None)


def _columns(chart: Chart, width: int) -> int:
    """Return the number of columns: where there is room, such that all times are multiples of a
    column's.
    """
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
    """Add the work of a span in each column, in parts of a ps, as many as columns: whole numbers,
    so exact.
    """
    # The chart's `length` ps are length * columns parts, so a column has `length` of them, and no
    # edge is rounded:
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
