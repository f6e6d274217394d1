"""A timeline's excerpt: when the engines of each device work on the first samples, simulated."""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..plan import ChainPlan
from ..report import plural
from ..run import simulate
from ..timeline import Course, LaneKind, SpanRecorder, Window, timeline_of
from ..timeline import Timeline as Recorded
from .numbers import time
from .parts import Chart, Key, Section
from .roofs import in_order
from .source import Run

MOST_BARS = 6000
_POINTS = 1000
"""Gaps below the window over this number are not seen, and close."""

_FURTHER_SAMPLES = 6
"""Samples that enter within the window once the pipeline is full."""

_KINDS = (LaneKind.FP, LaneKind.EB, LaneKind.PG, LaneKind.MEMORY)


class Lane(NamedTuple):
    """An engine, or another resource of a device: it has the place `number` among those of its kind there."""

    device: int
    kind: str
    number: int
    name: str


@dataclasses.dataclass(frozen=True)
class Timeline:
    """Bars (lane, sample, start, end) within the window, in ps; where there are too many, samples are one, -1."""

    window_ps: int
    lanes: tuple[Lane, ...]
    bars: NDArray[np.int64]


def timeline(run: Run) -> Section | None:
    """Return the section; None without a plan."""
    if run.plan is None or run.steady is None:
        return None
    found = excerpt(run.plan, int(run.results.config["samples"]))
    kinds = in_order(lane.kind for lane in found.lanes)
    data = {
        "window_ps": found.window_ps,
        "devices": run.plan.devices,
        "kinds": kinds,
        "lanes": [
            {"device": lane.device, "kind": lane.kind, "number": lane.number, "name": lane.name} for lane in found.lanes
        ],
        "bars": found.bars.T.tolist(),
    }
    entered = f"{run.steady.fill_samples:.1f}"
    said = f"The pipeline is full after {time(run.steady.fill_ps)}, when {entered} samples have entered. "
    told_apart = len(found.bars) == 0 or found.bars[0, 1] >= 0
    said += "Light and dark shades distinguish samples. " if told_apart else ""
    whose = "the first replica's" if run.plan.data_parallel.replicas > 1 else "the"
    said += f"Shown are {whose} first {time(found.window_ps)}, simulated; gaps are engines that wait."
    legend = tuple(Key(kind, f"kind-{kind}") for kind in kinds)
    return Section(
        "Timeline of the first samples",
        said,
        (Chart("gantt", f"When engines work on samples, {plural(run.plan.devices, 'device')}", data, legend),),
    )


def excerpt(plan: ChainPlan, samples: int) -> Timeline:
    """Return the timeline of the start of an epoch of `samples` samples, until the pipeline is full and a bit longer.

    Where the pipeline drains at updates, the first of these is in the window.
    """
    entering = math.ceil(plan.steady.fill_ps / plan.timing.interval_ps) + _FURTHER_SAMPLES
    if plan.config.schedule.drains:
        entering += plan.batch
    window_ps = entering * plan.timing.interval_ps
    whole = -(-entering // plan.batch) * plan.config.batch
    once = plan.with_epochs(1)
    course = Course.of(once, min(samples, whole))
    window = Window(0, course.run_samples - 1)
    recorder = SpanRecorder(course, window)
    simulate(once, min(samples, whole), recorder)
    return _within(timeline_of(course, window, [recorder]), window_ps)


def _within(recorded: Recorded, window_ps: int) -> Timeline:
    """Return what the resources of devices serve within a time."""
    gap_ps = window_ps // _POINTS
    lanes: list[Lane] = []
    by_lane: list[NDArray[np.int64]] = []
    for lane in recorded.lanes:
        spans = recorded.spans[lane.resource]
        if lane.kind not in _KINDS or not spans:
            continue
        kind = lane.kind.value
        alike = sum((other.device, other.kind) == (lane.device, kind) for other in lanes)
        lanes.append(Lane(lane.device, kind, alike, lane.title.removeprefix(f"{kind} of ").removeprefix(f"{kind}, ")))
        end = np.concatenate([span.left_ps for span in spans])
        start = end - np.repeat([span.row_ps for span in spans], [len(span.left_ps) for span in spans])
        sample = np.repeat([span.number for span in spans], [len(span.left_ps) for span in spans])
        within = start < window_ps
        by_lane.append(_joined(sample[within], start[within], end[within], gap_ps))
    if sum(map(len, by_lane)) > MOST_BARS:
        by_lane = [_joined(np.full(len(bars), -1), bars[:, 1], bars[:, 2], gap_ps) for bars in by_lane]
    bars = [np.column_stack([np.full(len(bars), lane), bars]) for lane, bars in enumerate(by_lane)]
    return Timeline(window_ps, tuple(lanes), np.concatenate(bars).clip(max=window_ps))


def _joined(
    sample: NDArray[np.int64], start: NDArray[np.int64], end: NDArray[np.int64], gap_ps: int
) -> NDArray[np.int64]:
    """Return bars (sample, start, end): rows of a sample with no more than `gap_ps` between them are one."""
    if not len(start):
        return np.empty((0, 3), np.int64)
    begins = np.r_[True, (sample[1:] != sample[:-1]) | (start[1:] - end[:-1] > gap_ps)]
    ends = np.r_[begins[1:], True]
    return np.column_stack([sample[begins], start[begins], end[ends]])
