"""Boards and links on the page: the rate that each would allow, when they work, how busy they were,
what they hold.

Utilisation is that of the run, demand on links that of the steady rate; the timeline shows the
first samples.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...common import format_bytes, percent, plural
from ...plan import ChainPlan, DeviceLayout, Layout, exchange_loads
from ...run import PHASES, DeviceUsage, Usage, simulate
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
            "backward": isinstance(load, LinkLoad) and load.device > load.receiver,
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
    said = (
        f"{bottleneck.slowest.name} sets the pace: {time(bottleneck.slowest.sample_ps)} for a"
        f" sample{ties}{setting}."
    )
    said += "".join(f" {line}." for line in wider_links(run.steady, run.cause))
    said += f" The chain's steady state gives {rate(run.steady.images_per_s, run.noun)}"
    if run.images_per_s is not None:
        share = percent(run.images_per_s / run.steady.images_per_s)
        said += (
            "; the whole run, with filling and draining, reached"
            f" {rate(run.images_per_s, run.noun)}, {share} of it"
        )
    schedule = run.plan.config.schedule
    if schedule.drains:
        said += (
            f". {schedule.name} drains the pipeline at each update, so its steady state is below"
            " the roofs"
        )
    rows = [
        [load.name, time(load.sample_ps), rate(replicas * 1e12 / load.sample_ps, run.noun)]
        for load in sorted(every, key=lambda load: -load.sample_ps)[:_MOST_ROWS]
    ]
    slowest = Table(
        "The slowest",
        ["engine or link", "time of a sample", "would allow"],
        rows,
        ("engine or link",),
    )
    return Section("What limits the rate", f"{said}.", (chart,), (slowest,))


def kind_of(load: Load) -> str:
    """Return the kind of a load: an engine's phase, `link`, `memory`, `exchange`."""
    return load.phase.value if isinstance(load, EngineLoad) else load.kind


def in_order(kinds: Iterable[str]) -> list[str]:
    """Return kinds of loads, each once: the phases of engines, then the others."""
    distinct = dict.fromkeys(kinds)
    phases = [phase for phase in PHASES if phase in distinct]
    return phases + [kind for kind in distinct if kind not in PHASES]


def place_of(load: Load) -> float:
    """Return the device of a load; a link is halfway between two."""
    return (load.device + load.receiver) / 2 if isinstance(load, LinkLoad) else load.device


class Lane(NamedTuple):
    """An engine, or another resource of a device: it has the place `number` among those of its kind
    there.
    """

    device: int
    kind: str
    number: int
    name: str


@dataclasses.dataclass(frozen=True)
class Timeline:
    """Bars (lane, sample, start, end) within the window, in ps; where there are too many, samples
    are one, -1.
    """

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
    said = (
        f"The pipeline is full after {time(run.steady.fill_ps)}, when {entered} samples have"
        " entered. "
    )
    shades_differ = len(extract.bars) == 0 or extract.bars[0, 1] >= 0
    said += "Light and dark shades distinguish samples. " if shades_differ else ""
    whose = "the first replica's" if run.plan.data_parallel.replicas > 1 else "the"
    said += (
        f"Shown are {whose} first {time(extract.window_ps)}, simulated; gaps are engines that wait."
    )
    legend = tuple(Key(kind, f"kind-{kind}") for kind in kinds)
    return Section(
        "Timeline of the first samples",
        said,
        (
            Chart(
                "gantt",
                f"When engines work on samples, {plural(run.plan.devices, 'device')}",
                data,
                legend,
            ),
        ),
    )


def excerpt(plan: ChainPlan, samples: int) -> Timeline:
    """Return the timeline of the start of an epoch of `samples` samples, until the pipeline is full
    and a bit longer.

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
        lanes.append(
            Lane(
                lane.device,
                kind,
                alike,
                lane.title.removeprefix(f"{kind} of ").removeprefix(f"{kind}, "),
            )
        )
        counts = [len(rows.left_ps) for rows in served]
        end = np.concatenate([rows.left_ps for rows in served])
        start = end - np.repeat([rows.row_ps for rows in served], counts)
        sample = np.repeat([rows.number for rows in served], counts)
        within = start < window_ps
        by_lane.append(_joined(sample[within], start[within], end[within], gap_ps))
    if sum(map(len, by_lane)) > MOST_BARS:
        by_lane = [
            _joined(np.full(len(bars), -1), bars[:, 1], bars[:, 2], gap_ps) for bars in by_lane
        ]
    bars = [np.column_stack([np.full(len(bars), lane), bars]) for lane, bars in enumerate(by_lane)]
    return Timeline(window_ps, tuple(lanes), np.concatenate(bars).clip(max=window_ps))


def _joined(
    sample: NDArray[np.int64], start: NDArray[np.int64], end: NDArray[np.int64], gap_ps: int
) -> NDArray[np.int64]:
    """Return bars (sample, start, end): rows of a sample with no more than `gap_ps` between them
    are one.
    """
    if not len(start):
        return np.empty((0, 3), np.int64)
    begins = np.r_[True, (sample[1:] != sample[:-1]) | (start[1:] - end[:-1] > gap_ps)]
    ends = np.r_[begins[1:], True]
    return np.column_stack([sample[begins], start[begins], end[ends]])


_RIGHT, _LEFT = "link →", "link ←"

_MEMORIES = ("LPRAM", "LGB", "Act-RAM", "BPRAM", "BGB", "buffers")
_MEMORIES_HOLD = (
    "LPRAM and LGB hold parameters and gradients, Act-RAM the activations of samples in flight"
)


def utilisation(run: Run) -> Section | None:
    """Return the section; None before the first epoch."""
    usage = run.usage
    if usage is None:
        return None
    columns = [*PHASES, "idle", *([_RIGHT, _LEFT] if usage.links else [])]
    shares = [_busy_shares(run, usage, device) for device in usage.devices]
    cells = [
        {"device": device, "of": column, "share": of_device.get(column)}
        for device, of_device in enumerate(shares)
        for column in columns
    ]
    idle = [of_device["idle"] for of_device in shares]
    least_busy = max(range(len(idle)), key=lambda device: idle[device])
    said = (
        f"Multipliers were busy {percent(1 - sum(idle) / len(idle))} of the run, the mean over"
        " devices."
    )
    if len(idle) > 1:
        said += f" Device {least_busy} waited most: it was idle for {percent(idle[least_busy])}."
    chart = Chart(
        "heat",
        "Busy share of the run, in %, of each device's engines and links",
        {"columns": columns, "cells": cells},
    )
    return Section("Utilisation", said, (chart,), (_utilisation_table(usage, columns, shares),))


def _busy_shares(run: Run, usage: Usage, device: DeviceUsage) -> dict[str, float]:
    """Return the busy shares of a device's engines and of the links on which it sends, and its idle
    share.

    The idle share weights engines by multipliers; without a plan these are not known one by one,
    and count alike.
    """
    weights = dict.fromkeys(device.busy, 1)
    if run.steady is not None:
        weights = dict.fromkeys(device.busy, 0)
        for load in run.steady.devices[device.device].engines:
            weights[load.phase.value] += load.engine.multipliers
    busy = sum(weights[phase] * share for phase, share in device.busy.items())
    total = sum(weights[phase] for phase in device.busy)
    links: dict[str, float] = {}
    for link in usage.links:
        if link.sender == device.device:
            side = _RIGHT if link.receiver > link.sender else _LEFT
            links[side] = max(links.get(side, 0.0), link.utilisation)
    return {**device.busy, "idle": 1 - busy / total, **links}


def _utilisation_table(usage: Usage, columns: list[str], shares: list[dict[str, float]]) -> Table:
    rows = []
    for device, share in zip(usage.devices, shares, strict=True):
        cells = [percent(share[column]) if column in share else "–" for column in columns]
        slices, multipliers = ", ".join(device.slices), f"{device.multipliers:,}"
        rows.append([str(device.device), device.board, slices, multipliers, *cells])
    return Table(
        "Every device",
        ["device", "board", "slices", "multipliers", *columns],
        rows,
        ("board", "slices"),
    )


def links(run: Run) -> Section | None:
    """Return the section; None without a plan, and where there is no link."""
    if run.plan is None or run.steady is None or not run.steady.links:
        return None
    bars: list[dict[str, Any]] = [
        {
            "link": place,
            "ends": "–".join(map(str, sorted(load.hop))),
            "name": f"{load.device} → {load.receiver}",
            "right": load.receiver > load.device,
            "demand": load.demand(run.steady.period_ps),
            "bandwidth": load.capacity,
            "bytes": load.sample_bytes,
        }
        for place, load in zip(run.steady.link_places, run.steady.links, strict=True)
    ]
    worst = max(bars, key=lambda bar: bar["demand"] / bar["bandwidth"])
    share = worst["demand"] / worst["bandwidth"]
    said = (
        f"The fullest direction, {worst['name']}, needs {worst['demand']:.2f} Gb/s of"
        f" {worst['bandwidth']:g} Gb/s ({percent(share)}) at the steady rate."
    )
    chart = Chart(
        "demand",
        "Demand on each link, in Gb/s, at the steady rate",
        {"bars": bars},
        (
            Key("to the right", "link-right"),
            Key("to the left", "link-left"),
            Key("bandwidth", "limit", "line"),
        ),
    )
    sent = {(link.sender, link.receiver): link for link in (run.usage.links if run.usage else ())}
    rows = []
    for load, bar in zip(run.steady.links, bars, strict=True):
        used = sent.get(load.hop)
        rows.append(
            [
                bar["name"],
                ", ".join(sorted({str(stream.path.value) for stream in load.streams})) or "–",
                format_bytes(bar["bytes"]),
                f"{bar['demand']:.2f} Gb/s",
                f"{bar['bandwidth']:g} Gb/s",
                percent(bar["demand"] / bar["bandwidth"]),
                format_bytes(sum(used.path_bytes.values())) if used else "–",
                percent(used.utilisation) if used else "–",
            ]
        )
    columns = [
        "link",
        "data paths",
        "a sample",
        "demand",
        "bandwidth",
        "share",
        "sent in the run",
        "used in the run",
    ]
    return Section(
        "Links", said, (chart,), (Table("Every link", columns, rows, ("link", "data paths")),)
    )


def memory(run: Run) -> Section | None:
    """Return the section; None with neither a plan nor a finished epoch."""
    if run.layout is not None:
        held = [_of_layout(run.layout, device) for device in run.layout.devices]
    elif run.usage is not None:
        held = [_of_usage(device) for device in run.usage.devices]
    else:
        return None
    used = {part for device in held for part, size in device["bytes"].items() if size}
    parts = [part for part in _MEMORIES if part in used]
    data = {"parts": [{"name": part, "colour": _colour(part)} for part in parts], "devices": held}
    title = "On-chip memory of each device, in MiB, against what its board has"
    legend = (*(Key(part, _colour(part)) for part in parts), Key("on board", "limit", "line"))
    return Section(
        "Memory",
        _memory_said(run, held),
        (Chart("memory", title, data, legend),),
        (_memory_table(held, parts),),
    )


def _of_layout(layout: Layout, device: DeviceLayout) -> dict[str, Any]:
    sums = dict.fromkeys(_MEMORIES, 0)
    for part in device.slices:
        sums["LPRAM"] += part.memory.lpram.block_ram_bytes
        sums["LGB"] += part.memory.lgb.block_ram_bytes
        sums["Act-RAM"] += part.memory.act_ram.block_ram_bytes
        # `working` counts Act-RAM as well, which has a bar of its own.
        sums["buffers"] += part.memory.working.block_ram_bytes - part.memory.act_ram.block_ram_bytes
    sums["BPRAM"], sums["BGB"] = device.bpram.block_ram_bytes, device.bgb.block_ram_bytes
    return {
        "device": device.device,
        "bytes": sums,
        "board": layout.room(device),
        "off_chip": device.off_chip_bytes,
        "missing": device.missing_bytes,
    }


def _of_usage(device: DeviceUsage) -> dict[str, Any]:
    held = device.memory
    sums = {
        "LPRAM": held.lpram,
        "LGB": held.lgb,
        "Act-RAM": held.act_ram,
        "BPRAM": held.bpram,
        "BGB": held.bgb,
    }
    missing = max(0, sum(sums.values()) - held.board)
    return {
        "device": device.device,
        "bytes": sums,
        "board": held.board,
        "off_chip": held.off_chip,
        "missing": missing,
    }


def _colour(part: str) -> str:
    return f"memory-{part.lower()}"


def _memory_said(run: Run, held: list[dict[str, Any]]) -> str:
    fullest = max(held, key=_filled)
    missing = sum(device["missing"] for device in held)
    off_chip = sum(device["off_chip"] for device in held)
    if missing:
        said = f"{format_bytes(missing)} do not fit on chip."
    else:
        said = (
            "Everything fits on chip."
            if not off_chip
            else "Everything that is not kept off chip fits on chip."
        )
    if off_chip:
        said += f" {format_bytes(off_chip)} of parameters, gradients and activations are off chip."
    where = (
        f"Device {fullest['device']} is the fullest, with" if len(held) > 1 else "The device needs"
    )
    said += f" {where} {percent(_filled(fullest))} of its board's memory. {_MEMORIES_HOLD}."
    if any(device["bytes"]["BPRAM"] for device in held):
        said += " BPRAM and BGB hold those of other devices."
    return said


def _filled(device: dict[str, Any]) -> float:
    return float(sum(device["bytes"].values()) / device["board"])


def _memory_table(held: list[dict[str, Any]], parts: list[str]) -> Table:
    extra = [
        (key, name)
        for key, name in (("off_chip", "off chip"), ("missing", "missing"))
        if any(map(operator.itemgetter(key), held))
    ]
    rows = []
    for device in held:
        sizes = device["bytes"]
        cells = [format_bytes(sizes[part]) if sizes.get(part) else "–" for part in parts]
        cells += [format_bytes(device["board"]), percent(_filled(device))]
        cells += [format_bytes(device[key]) if device[key] else "–" for key, _ in extra]
        rows.append([str(device["device"]), *cells])
    return Table(
        "Every device", ["device", *parts, "board", "of board", *(name for _, name in extra)], rows
    )
