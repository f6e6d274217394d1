"""A chart of a timeline: lines of spans against time, for text and pictures."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from .lanes import Lane, LaneKind
from .span import Span
from .timeline import Timeline
from .window import Window

_PHASES = (LaneKind.FP, LaneKind.EB, LaneKind.PG)


@dataclasses.dataclass(frozen=True, eq=False)
class Line:
    """A line: the work of one lane, or of a phase of all slices of a device."""

    device: int
    label: str
    spans: tuple[Span, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Chart:
    """Lines from `begin_ps` to `end_ps`: from the first work on some samples to the last, with all that runs then.

    `all_lanes` says whether each lane has a line of its own.
    """

    timeline: Timeline
    shown: Window
    all_lanes: bool
    lines: tuple[Line, ...]
    begin_ps: int
    end_ps: int


def chart_of(timeline: Timeline, shown: Window, *, all_lanes: bool) -> Chart:
    """Return the chart of the time in which the shown samples are worked on.

    `all_lanes` gives each lane a line of its own, rather than FP, EB and PG of each device.
    """
    lines = tuple(_lane_lines(timeline) if all_lanes else _phase_lines(timeline))
    spans = [
        span
        for lane in timeline.lanes
        if lane.counts_samples
        for span in timeline.spans[lane.resource]
        if span.number in shown.numbers
    ]
    return Chart(timeline, shown, all_lanes, lines, min(s.start_ps for s in spans), max(s.end_ps for s in spans))


def _lane_lines(timeline: Timeline) -> Iterator[Line]:
    for lane in timeline.lanes:
        yield Line(lane.device, lane.title.partition(" (")[0], timeline.spans[lane.resource])


def _phase_lines(timeline: Timeline) -> Iterator[Line]:
    for device in range(timeline.course.plan.devices):
        for kind in _PHASES:
            lanes: list[Lane] = [lane for lane in timeline.lanes if (lane.device, lane.kind) == (device, kind)]
            if lanes:
                spans = tuple(span for lane in lanes for span in timeline.spans[lane.resource])
                yield Line(device, kind.value, spans)
