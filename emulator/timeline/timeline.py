"""The timeline of a run: its lanes, and what each did in a window of samples."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence

from .course import Course, Versions
from .lanes import Lane, lanes_of
from .recorder import SpanRecorder
from .span import Span
from .window import Window


@dataclasses.dataclass(frozen=True, eq=False)
class Timeline:
    """The lanes of a chain, and their spans in a window, lane by lane and in order; of the first replica."""

    course: Course
    window: Window
    lanes: tuple[Lane, ...]
    spans: Mapping[str, tuple[Span, ...]]

    @functools.cached_property
    def versions(self) -> Sequence[Mapping[int, Versions]]:
        """For each device, the versions of the weights that it used for each sample."""
        return self.course.versions(self.window.numbers)

    def board(self, device: int) -> str:
        """Return the name of a device's board."""
        return self.course.plan.cluster.board(device).name


def timeline_of(course: Course, window: Window, recorders: Sequence[SpanRecorder]) -> Timeline:
    """Return the timeline that the recorders of all ranks have kept."""
    lanes = lanes_of(course.plan)
    kept = {resource: rows for recorder in recorders for resource, rows in recorder.kept.items()}
    spans = {
        lane.resource: tuple(Span(lane, number, *rows) for number, rows in sorted(kept.get(lane.resource, {}).items()))
        for lane in lanes
    }
    return Timeline(course, window, lanes, spans)
