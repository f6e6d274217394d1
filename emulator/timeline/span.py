"""Spans: the work of a resource on one sample, or on one of its rows."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator

from ...comm import Times
from .lanes import Lane, LaneKind


class Level(enum.Enum):
    """The detail of a trace: a slice for each sample on each resource, or for each of its rows."""

    SAMPLE = "sample"
    ROW = "row"


@dataclasses.dataclass(frozen=True, eq=False)
class Span:
    """The rows of a sample, or of a mini-batch's exchange, on a lane: when each was ready and when it left, in ps.

    Each row took `row_ps`; between rows the lane may have been idle. `row` is the number of the row where the span is
    but one of several. `share` of their full bytes was sent.
    """

    lane: Lane
    number: int
    ready_ps: Times
    left_ps: Times
    row_ps: int
    share: float = 1.0
    row: int | None = None

    @property
    def start_ps(self) -> int:
        """When the first row started."""
        return int(self.left_ps[0]) - self.row_ps

    @property
    def end_ps(self) -> int:
        """When the last row left."""
        return int(self.left_ps[-1])

    @property
    def arrival_ps(self) -> int:
        """When the first row arrived at the receiver."""
        return int(self.left_ps[0]) + self.lane.latency_ps

    @property
    def busy_ps(self) -> int:
        """Time for which the rows occupied the lane, without what lies between them."""
        return self.row_ps * len(self.left_ps)

    @property
    def bytes(self) -> int | None:
        """Bytes that were sent; those of an exchange are the gradient's before compression."""
        if self.lane.item_bytes is None:
            return None
        return round(self.lane.item_bytes * len(self.left_ps) * self.share)

    def at(self, level: Level) -> Iterator[Span]:
        """Yield the spans of a level: itself, or one for each row."""
        if level is Level.SAMPLE or self.lane.kind is LaneKind.EXCHANGE:
            yield self
            return
        rows = len(self.left_ps)
        for place in range(rows):
            at, row = slice(place, place + 1), rows - 1 - place if self.lane.last_first else place
            yield dataclasses.replace(self, ready_ps=self.ready_ps[at], left_ps=self.left_ps[at], row=row)
