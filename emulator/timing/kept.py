"""What boards keep over time: features of micro-batches, from F until B or W needs them last, but
between O and L, and those that B computes again.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import NamedTuple

from ..schedule import Kind
from .board import Step
from .timeline import Timed

Size = int | Fraction


class FeatureBytes(NamedTuple):
    """Bytes of a micro-batch on a stage: `kept` from the start of F on, `again` from that of R on,
    or of B where that computes them again.

    Where W is apart from B, `late` of both are kept from the end of B to that of W. Where others of
    the order have an R and this micro-batch has none, all features are kept from the start of F on:
    `whole` bytes, None where they are as many as both.
    """

    kept: Size
    again: Size = 0
    late: Size = 0
    whole: Size | None = None

    @property
    def all_kept(self) -> FeatureBytes:
        """Those of a micro-batch without an R in an order that has some."""
        whole = self.kept + self.again if self.whole is None else self.whole
        return FeatureBytes(whole, 0, min(self.late, whole))


@dataclasses.dataclass(frozen=True)
class Course:
    """What a board keeps over time: from each of `times_ps` on, in ascending order, so many
    `kept_bytes`; nothing before the first.
    """

    times_ps: tuple[int, ...]
    kept_bytes: tuple[int, ...]

    @property
    def peak_bytes(self) -> int:
        """The most that it keeps at a time."""
        return max(self.kept_bytes, default=0)


def kept_courses(
    timed: Iterable[Timed],
    devices: int,
    last: Kind,
    sizes: Callable[[Step], FeatureBytes],
    *,
    apart: bool = False,
) -> tuple[Course, ...]:
    """Return what each device keeps over time; of what ends and starts in one moment, the ends come
    first.

    Args:
        timed: actions in time. A step in spans of samples counts as one, from its first to its
            last; of a micro-batch without F nothing is known, and nothing counted.
        devices: their number.
        last: the kind of the action that needs a micro-batch's features last.
        sizes: the bytes of a step's micro-batch on its stage.
        apart: whether R is an action of its own of the micro-batches that are recomputed.
    """
    spans: dict[Step, tuple[int, int, int]] = {}
    for action in timed:
        device, start_ps, end_ps = spans.get(action.step, (action.device, action.start_ps, 0))
        whole = device, min(start_ps, action.start_ps), max(end_ps, action.end_ps)
        spans[action.step] = whole
    changes = [collections.defaultdict[int, Size](int) for _ in range(devices)]
    for step, (device, start_ps, end_ps) in spans.items():
        if step._replace(kind=Kind.FORWARD) not in spans:
            continue
        size, change = sizes(step), changes[device]
        redone = step._replace(kind=Kind.RECOMPUTE) in spans
        if apart and not redone:
            size = size.all_kept
        if step.kind in (Kind.FORWARD, Kind.LOAD):
            change[start_ps] += size.kept
        elif step.kind is Kind.OFFLOAD:
            change[end_ps] -= size.kept
        elif step.kind is Kind.RECOMPUTE:
            change[start_ps] += size.again
        elif step.kind is Kind.BACKWARD:
            change[start_ps] += 0 if redone else size.again
            change[end_ps] -= size.kept + size.again
            if last is Kind.GRADIENT:
                change[end_ps] += size.late
        elif last is Kind.GRADIENT:
            change[end_ps] -= size.late
    return tuple(map(course_of, changes))


def course_of(changes: Mapping[int, Size]) -> Course:
    """Return the course of changes in bytes at times in ps; bytes are rounded up."""
    times_ps = sorted(time_ps for time_ps, change in changes.items() if change)
    totals = itertools.accumulate(changes[time_ps] for time_ps in times_ps)
    return Course(tuple(times_ps), tuple(math.ceil(total) for total in totals))
