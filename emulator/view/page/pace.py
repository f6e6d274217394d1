"""Pace: the rate that each engine, link or port alone would allow, and when engines work on the first samples."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...common import percent, plural
from ...plan import ChainPlan, exchange_loads
from ...run import PHASES, simulate
from ...timing import EngineLoad, LinkLoad, Load, loads_of
from ..limits import cut_setting, wider_links
from ..timeline.rows import LaneKind, RecordedRows, RowRun
from ..timeline.samples import RunSamples, Window
from .parts import Chart, Key, Section, Table, rate, time
from .source import Run

_MOST_ROWS = 10

MOST_BARS = 6000
_POINTS = 1000
"""Gaps below the window over this number are not seen, and close."""

_FURTHER_SAMPLES = 6
"""Samples that enter within the window once the pipeline is full."""

_KINDS = (LaneKind.FP, LaneKind.EB, LaneKind.PG, LaneKind.MEMORY)


def roofs(run: Run) -> Section | None:
    """Return the section; None without a plan."""
    if run.plan is None or run.steady is None or run.cause is None:
        return None
    bottleneck, replicas = run.steady.bottleneck, run.plan.data_parallel.replicas
    every = [load for load in loads_of(run.plan.timing, exchange_loads(run.plan)) if load.sample_ps]
    points = [
        {
            "name": load.name,
            "kind": kind_of(load),
            "device": place_of(load),
            "backward": isinstance(load, LinkLoad) and load.sender > load.receiver,
            "rate": replicas * 1e12 / load.sample_ps,
        }
        for load in every
    ]
    kinds = in_order(kind_of(load) for load in every)
    data = {
        "devices": run.plan.devices,
        "kinds": kinds,
        "points": points,
        "steady": run.steady.images_per_s,
        "reached": run.images_per_s,
        "unit": f"{run.noun}s/s",
    }
    lines = [Key(f"steady state, {rate(run.steady.images_per_s, run.noun)}", "limit", "line")]
    if run.images_per_s is not None:
        lines.append(Key(f"reached, {rate(run.images_per_s, run.noun)}", "limit", "dashes"))
    chart = Chart(
        "roofs",
        f"Rate that each engine or link alone would allow with this cut, in {run.noun}s/s",
        data,
        (*(Key(kind, f"kind-{kind}") for kind in kinds), *lines),
    )
    ties = (
        f" ({bottleneck.ties} {'others are' if bottleneck.ties > 1 else 'other is'} equally slow)"
        if bottleneck.ties
        else ""
    )
    setting = cut_setting(run.steady, run.cause)
    said = f"{bottleneck.slowest.name} sets the pace: {time(bottleneck.slowest.sample_ps)} for a sample{ties}{setting}."
    said += "".join(f" {line}." for line in wider_links(run.steady, run.cause))
    said += f" The chain's steady state gives {rate(run.steady.images_per_s, run.noun)}"
    if run.images_per_s is not None:
        share = percent(run.images_per_s / run.steady.images_per_s)
        said += f"; the whole run, with filling and draining, reached {rate(run.images_per_s, run.noun)}, {share} of it"
    schedule = run.plan.config.schedule
    if schedule.drains:
        said += f". {schedule.name} drains the pipeline at each update, so its steady state is below the roofs"
    rows = [
        [load.name, time(load.sample_ps), rate(replicas * 1e12 / load.sample_ps, run.noun)]
        for load in sorted(every, key=lambda load: -load.sample_ps)[:_MOST_ROWS]
    ]
    slowest = Table("The slowest", ["engine or link", "time of a sample", "would allow"], rows, ("engine or link",))
    return Section("What limits the rate", f"{said}.", (chart,), (slowest,))


def kind_of(load: Load) -> str:
    """Return the kind of a load: an engine's phase, `link`, `memory`, `exchange`."""
    return load.phase.value if isinstance(load, EngineLoad) else load.kind


def in_order(kinds: Iterable[str]) -> list[str]:
    """Return kinds of loads, each once: the phases of engines, then the others."""
    distinct = dict.fromkeys(kinds)
    return [*(phase for phase in PHASES if phase in distinct), *(kind for kind in distinct if kind not in PHASES)]


def place_of(load: Load) -> float:
    """Return the device of a load; a link is halfway between two."""
    return (load.sender + load.receiver) / 2 if isinstance(load, LinkLoad) else load.device


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
    extract = excerpt(run.plan, int(run.results.config["samples"]))
    kinds = in_order(lane.kind for lane in extract.lanes)
    data = {
        "window_ps": extract.window_ps,
        "devices": run.plan.devices,
        "kinds": kinds,
        "lanes": [
            {"device": lane.device, "kind": lane.kind, "number": lane.number, "name": lane.name}
            for lane in extract.lanes
        ],
        "bars": extract.bars.T.tolist(),
    }
    entered = f"{run.steady.fill_samples:.1f}"
    said = f"The pipeline is full after {time(run.steady.fill_ps)}, when {entered} samples have entered. "
    told_apart = len(extract.bars) == 0 or extract.bars[0, 1] >= 0
    said += "Light and dark shades distinguish samples. " if told_apart else ""
    whose = "the first replica's" if run.plan.data_parallel.replicas > 1 else "the"
    said += f"Shown are {whose} first {time(extract.window_ps)}, simulated; gaps are engines that wait."
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
    first = RunSamples.of(once, min(samples, whole))
    run = RowRun(first, Window(0, first.number - 1))
    recorder = run.recorder()
    simulate(once, min(samples, whole), recorder)
    return _within(run.rows([recorder]), window_ps)


def _within(recorded: RecordedRows, window_ps: int) -> Timeline:
    """Return what the resources of devices serve within a time."""
    gap_ps = window_ps // _POINTS
    lanes: list[Lane] = []
    by_lane: list[NDArray[np.int64]] = []
    for lane in recorded.run.lanes:
        served = recorded.by_resource[lane.resource]
        if lane.kind not in _KINDS or not served:
            continue
        kind = lane.kind.value
        alike = sum((other.device, other.kind) == (lane.device, kind) for other in lanes)
        lanes.append(Lane(lane.device, kind, alike, lane.title.removeprefix(f"{kind} of ").removeprefix(f"{kind}, ")))
        counts = [len(rows.left_ps) for rows in served]
        end = np.concatenate([rows.left_ps for rows in served])
        start = end - np.repeat([rows.row_ps for rows in served], counts)
        sample = np.repeat([rows.number for rows in served], counts)
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
