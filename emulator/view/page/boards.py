"""Boards and links: how busy they were over the run, what links carry at the steady rate, and what memories hold."""

from __future__ import annotations

from typing import Any

from ...common import format_bytes, percent
from ...plan import DeviceLayout, Layout
from ...run import PHASES, DeviceUsage, Usage
from .parts import Chart, Key, Section, Table
from .source import Run

_RIGHT, _LEFT = "link →", "link ←"

_MEMORIES = ("LPRAM", "LGB", "Act-RAM", "BPRAM", "BGB", "buffers")
_MEMORIES_HOLD = "LPRAM and LGB hold parameters and gradients, Act-RAM the activations of samples in flight"


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
    said = f"Multipliers were busy {percent(1 - sum(idle) / len(idle))} of the run, the mean over devices."
    if len(idle) > 1:
        said += f" Device {least_busy} waited most: it was idle for {percent(idle[least_busy])}."
    chart = Chart(
        "heat", "Busy share of the run, in %, of each device's engines and links", {"columns": columns, "cells": cells}
    )
    return Section("Utilisation", said, (chart,), (_utilisation_table(usage, columns, shares),))


def _busy_shares(run: Run, usage: Usage, device: DeviceUsage) -> dict[str, float]:
    """Return the busy shares of a device's engines and of the links on which it sends, and its idle share.

    The idle share weights engines by multipliers; without a plan these are not known one by one, and count alike.
    """
    weights = dict.fromkeys(device.busy, 1)
    if run.plan is not None:
        held = run.plan.timing.engines[device.device]
        for phase, engines in zip(
            PHASES, zip(*((part.fp, part.eb, part.pg) for part in held), strict=True), strict=True
        ):
            weights[phase] = sum(engine.multipliers for engine in engines if engine is not None)
    busy = sum(weights[phase] * share for phase, share in device.busy.items())
    total = sum(weights[phase] for phase in device.busy)
    links: dict[str, float] = {}
    for link in usage.links:
        if link.sender == device.device:
            side = _RIGHT if link.receiver > link.sender else _LEFT
            links[side] = max(links.get(side, 0.0), link.utilisation)
    return {**device.busy, "idle": 1 - busy / total, **links}


def _utilisation_table(usage: Usage, columns: list[str], shares: list[dict[str, float]]) -> Table:
    rows = [
        [
            str(device.device),
            device.board,
            ", ".join(device.slices),
            f"{device.multipliers:,}",
            *(percent(share[column]) if column in share else "–" for column in columns),
        ]
        for device, share in zip(usage.devices, shares, strict=True)
    ]
    return Table("Every device", ["device", "board", "slices", "multipliers", *columns], rows, ("board", "slices"))


def links(run: Run) -> Section | None:
    """Return the section; None without a plan, and where there is no link."""
    if run.plan is None or run.steady is None or not run.steady.links:
        return None
    bars: list[dict[str, Any]] = [
        {
            "link": place,
            "ends": "–".join(map(str, sorted((use.load.sender, use.load.receiver)))),
            "name": use.load.link.removeprefix("link ").replace("->", "→"),
            "right": use.load.receiver > use.load.sender,
            "demand": use.demand_gbps,
            "bandwidth": use.bandwidth_gbps,
            "bytes": use.load.sample_bytes,
        }
        for place, use in zip(run.steady.link_places, run.steady.links, strict=True)
    ]
    worst = max(bars, key=lambda bar: bar["demand"] / bar["bandwidth"])
    share = worst["demand"] / worst["bandwidth"]
    said = (
        f"The fullest direction, {worst['name']}, needs {worst['demand']:.2f} Gb/s of {worst['bandwidth']:g} Gb/s"
        f" ({percent(share)}) at the steady rate."
    )
    chart = Chart(
        "demand",
        "Demand on each link, in Gb/s, at the steady rate",
        {"bars": bars},
        (Key("to the right", "link-right"), Key("to the left", "link-left"), Key("bandwidth", "limit", "line")),
    )
    sent = {(link.sender, link.receiver): link for link in (run.usage.links if run.usage else ())}
    rows = []
    for use, bar in zip(run.steady.links, bars, strict=True):
        used = sent.get((use.load.sender, use.load.receiver))
        rows.append(
            [
                bar["name"],
                ", ".join(sorted({str(stream.path.value) for stream in use.load.streams})) or "–",
                format_bytes(bar["bytes"]),
                f"{bar['demand']:.2f} Gb/s",
                f"{bar['bandwidth']:g} Gb/s",
                percent(bar["demand"] / bar["bandwidth"]),
                format_bytes(sum(used.path_bytes.values())) if used else "–",
                percent(used.utilisation) if used else "–",
            ]
        )
    columns = ["link", "data paths", "a sample", "demand", "bandwidth", "share", "sent in the run", "used in the run"]
    return Section("Links", said, (chart,), (Table("Every link", columns, rows, ("link", "data paths")),))


def memory(run: Run) -> Section | None:
    """Return the section; None with neither a plan nor a finished epoch."""
    if run.layout is not None:
        held = [_of_layout(run.layout, device) for device in run.layout.devices]
    elif run.usage is not None:
        held = [_of_usage(device) for device in run.usage.devices]
    else:
        return None
    parts = [part for part in _MEMORIES if any(device["bytes"].get(part) for device in held)]
    data = {"parts": [{"name": part, "colour": _colour(part)} for part in parts], "devices": held}
    title = "On-chip memory of each device, in MiB, against what its board has"
    legend = (*(Key(part, _colour(part)) for part in parts), Key("on board", "limit", "line"))
    return Section(
        "Memory", _memory_said(run, held), (Chart("memory", title, data, legend),), (_memory_table(held, parts),)
    )


def _of_layout(layout: Layout, device: DeviceLayout) -> dict[str, Any]:
    sums = dict.fromkeys(_MEMORIES, 0)
    for part in device.slices:
        sums["LPRAM"] += part.memory.lpram.block_ram_bytes
        sums["LGB"] += part.memory.lgb.block_ram_bytes
        sums["Act-RAM"] += part.memory.act_ram.block_ram_bytes
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
    sums = {"LPRAM": held.lpram, "LGB": held.lgb, "Act-RAM": held.act_ram, "BPRAM": held.bpram, "BGB": held.bgb}
    missing = max(0, sum(sums.values()) - held.board)
    return {"device": device.device, "bytes": sums, "board": held.board, "off_chip": held.off_chip, "missing": missing}


def _colour(part: str) -> str:
    return f"memory-{part.lower()}"


def _memory_said(run: Run, held: list[dict[str, Any]]) -> str:
    fullest = max(held, key=_filled)
    missing, off_chip = (sum(device[key] for device in held) for key in ("missing", "off_chip"))
    if missing:
        said = f"{format_bytes(missing)} do not fit on chip."
    else:
        said = "Everything fits on chip." if not off_chip else "Everything that is not kept off chip fits on chip."
    if off_chip:
        said += f" {format_bytes(off_chip)} of parameters, gradients and activations are off chip."
    where = f"Device {fullest['device']} is the fullest, with" if len(held) > 1 else "The device needs"
    said += f" {where} {percent(_filled(fullest))} of its board's memory. {_MEMORIES_HOLD}."
    if any(device["bytes"]["BPRAM"] for device in held):
        said += " BPRAM and BGB hold those of other devices."
    return said


def _filled(device: dict[str, Any]) -> float:
    return float(sum(device["bytes"].values()) / device["board"])


def _memory_table(held: list[dict[str, Any]], parts: list[str]) -> Table:
    extra = [
        (key, name) for key, name in (("off_chip", "off chip"), ("missing", "missing")) if any(d[key] for d in held)
    ]
    rows = [
        [
            str(device["device"]),
            *(format_bytes(device["bytes"][part]) if device["bytes"].get(part) else "–" for part in parts),
            format_bytes(device["board"]),
            percent(_filled(device)),
            *(format_bytes(device[key]) if device[key] else "–" for key, _ in extra),
        ]
        for device in held
    ]
    return Table("Every device", ["device", *parts, "board", "of board", *(name for _, name in extra)], rows)
