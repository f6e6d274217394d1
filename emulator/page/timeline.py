"""A timeline's excerpt: when the engines of each device work on the first samples, simulated."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...comm import Served
from ..plan import Plan
from ..run import simulate
from ..timing import engine_loads
from .numbers import plural, time
from .parts import Chart, Key, Section
from .roofs import in_order
from .source import Run

MOST_BARS = 6000
_POINTS = 1000
"""Gaps below the window over this number are not seen, and close."""

_FURTHER_SAMPLES = 6
"""Samples that enter within the window once the pipeline is full."""

_OTHER = re.compile(r"(\w+) of device (\d+)")


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
    said += "Light and dark tell samples apart. " if told_apart else ""
    whose = "the first replica's" if run.plan.data_parallel.replicas > 1 else "the"
    said += f"Shown are {whose} first {time(found.window_ps)}, simulated; gaps are engines that wait."
    legend = tuple(Key(kind, f"kind-{kind}") for kind in kinds)
    return Section(
        "Timeline of the first samples",
        said,
        (Chart("gantt", f"When engines work on samples, {plural(run.plan.devices, 'device')}", data, legend),),
    )


def excerpt(plan: Plan, samples: int) -> Timeline:
    """Return the timeline of the start of an epoch of `samples` samples, until the pipeline is full and a bit longer.

    Where the pipeline drains at updates, the first of these is in the window.
    """
    entering = math.ceil(plan.steady.fill_ps / plan.timing.interval_ps) + _FURTHER_SAMPLES
    if plan.config.schedule.drains:
        entering += plan.batch
    window_ps = entering * plan.timing.interval_ps
    whole = -(-entering // plan.batch) * plan.config.batch
    recorder = _Recorder(plan, window_ps)
    once = dataclasses.replace(plan, config=plan.config.model_copy(update={"epochs": 1}))
    simulate(once, min(samples, whole), recorder)
    return recorder.timeline()


class _Recorder:
    """Keeps what the resources of devices serve within a window."""

    def __init__(self, plan: Plan, window_ps: int) -> None:
        self._window_ps, self._gap_ps = window_ps, window_ps // _POINTS
        self._lanes: dict[str, Lane] = {}
        self._samples: dict[str, int] = {}
        self._bars: dict[str, list[NDArray[np.int64]]] = {}
        for load in engine_loads(plan.timing):
            self._add(load.name, load.device, load.phase.value, str(load.part))

    def _add(self, name: str, device: int, kind: str, title: str) -> None:
        alike = sum(lane.device == device and lane.kind == kind for lane in self._lanes.values())
        self._lanes[name] = Lane(device, kind, alike, title)
        self._samples[name], self._bars[name] = 0, []

    def __call__(self, served: Served) -> None:
        """Keep the rows that a device's resource has served, as bars."""
        name = served.resource
        if name not in self._lanes:
            other = _OTHER.match(name)
            if other is None:
                return
            self._add(name, int(other[2]), other[1], name)
        samples, rows = served.left_ps.shape
        first = self._samples[name]
        self._samples[name] += samples
        end = served.left_ps.ravel()
        start, sample = end - served.row_ps, np.repeat(np.arange(first, first + samples), rows)
        within = start < self._window_ps
        self._bars[name].append(_joined(sample[within], start[within], end[within], self._gap_ps))

    def timeline(self) -> Timeline:
        """Return what was kept."""
        lanes = {name: lane for name, lane in self._lanes.items() if self._bars[name]}
        by_lane = [np.concatenate(self._bars[name]) for name in lanes]
        if sum(map(len, by_lane)) > MOST_BARS:
            by_lane = [_joined(np.full(len(bars), -1), bars[:, 1], bars[:, 2], self._gap_ps) for bars in by_lane]
        bars = [np.column_stack([np.full(len(bars), lane), bars]) for lane, bars in enumerate(by_lane)]
        return Timeline(self._window_ps, tuple(lanes.values()), np.concatenate(bars).clip(max=self._window_ps))


def _joined(
    sample: NDArray[np.int64], start: NDArray[np.int64], end: NDArray[np.int64], gap_ps: int
) -> NDArray[np.int64]:
    """Return bars (sample, start, end): rows of a sample with no more than `gap_ps` between them are one."""
    if not len(start):
        return np.empty((0, 3), np.int64)
    begins = np.r_[True, (sample[1:] != sample[:-1]) | (start[1:] - end[:-1] > gap_ps)]
    ends = np.r_[begins[1:], True]
    return np.column_stack([sample[begins], start[begins], end[ends]])
