"""Segments of a run: which plan trains which mini-batches, and from which virtual time on.

A run has one segment unless boards die. A death ends a segment at the last checkpoint (the end of a leg) that the chain
has reached by then; what it computed after that is lost. The next segment resumes from there, on a chain that is cut
anew over the boards that are left, once these have noticed the death and are loaded. Times are known without numbers,
so all segments are known before anything is trained.
"""

from __future__ import annotations

import dataclasses

from ..faults import BoardDeath
from ..plan import ChainPlan
from .legs import Position
from .segment import Death, Segment
from .timed_run import TimedRun


def segments_of(plan: ChainPlan, samples: int) -> tuple[Segment, ...]:
    """Return the segments of a run with `samples` samples in an epoch, in order; found by simulation if boards die.

    A board that dies after the end of the run changes nothing. Where no leg is finished between two deaths, the segment
    between them has none.
    """
    segments, deaths = [Segment(plan, samples)], plan.faults.in_order
    for death, after in zip(deaths, plan.survivors if deaths else (), strict=True):
        ended = _ended(segments[-1], death, after.devices)
        if ended is None:
            break
        segments[-1] = dataclasses.replace(segments[-1], death=ended)
        segments.append(Segment(after, samples, ended.at, ended.back_ps))
    return tuple(segments)


def _ended(segment: Segment, death: BoardDeath, left: int) -> Death | None:
    """Return how a board's death ends a segment; None if the run ends before."""
    back_ps = max(segment.start_ps, death.at_ps + death.detect_ps + death.reload_ps)
    run, reached_ps = TimedRun(segment), segment.start_ps
    for number, leg in segment.legs():
        end_ps = run.leg(leg)
        if end_ps > death.at_ps:
            return Death(death, Position(number, leg.first), leg, left, max(0, death.at_ps - reached_ps), back_ps)
        reached_ps = end_ps
    return None
