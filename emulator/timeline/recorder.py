"""An observer of a run that keeps what lanes serve in a window of samples."""

from __future__ import annotations

from typing import NamedTuple

from ...comm import Served, Times
from .course import Course
from .lanes import lanes_of
from .window import Window


class Rows(NamedTuple):
    """The rows of a sample on a resource: when they were ready and when they left, in ps, and the time of each.

    They had this share of their full bytes.
    """

    ready_ps: Times
    left_ps: Times
    row_ps: int
    share: float


class SpanRecorder:
    """Keeps the rows of a window's samples, by resource; the exchange of a mini-batch counts as its one row.

    Samples go through each resource in order, so the n-th that it serves is sample n.
    """

    def __init__(self, course: Course, window: Window) -> None:
        steps = range(course.step(window.first), course.step(window.last) + 1)
        self._wanted = {
            lane.resource: window.numbers if lane.counts_samples else steps for lane in lanes_of(course.plan)
        }
        self._served = dict.fromkeys(self._wanted, 0)
        self.kept: dict[str, dict[int, Rows]] = {}

    def __call__(self, served: Served) -> None:
        """Take note of what a resource has served."""
        first, wanted = self._served[served.resource], self._wanted[served.resource]
        end = self._served[served.resource] = first + len(served.left_ps)
        for number in range(max(first, wanted.start), min(end, wanted.stop)):
            ready_ps, left_ps = served.ready_ps[number - first].copy(), served.left_ps[number - first].copy()
            rows = Rows(ready_ps, left_ps, served.row_ps, served.share)
            self.kept.setdefault(served.resource, {})[number] = rows
