"""Memory: what each device stores on chip, against its board, and what it keeps off chip."""

from __future__ import annotations

from typing import Any

from ...common import format_bytes, percent
from ...plan import DeviceLayout, Layout
from ...run import DeviceUsage
from .parts import Chart, Key, Section, Table
from .source import Run

_PARTS = ("LPRAM", "LGB", "Act-RAM", "BPRAM", "BGB", "buffers")
_MEANING = "LPRAM and LGB hold parameters and gradients, Act-RAM the activations of samples in flight"


def memory(run: Run) -> Section | None:
    """Return the section; None with neither a plan nor a finished epoch."""
    if run.layout is not None:
        held = [_of_layout(run.layout, device) for device in run.layout.devices]
    elif run.usage is not None:
        held = [_of_usage(device) for device in run.usage.devices]
    else:
        return None
    parts = [part for part in _PARTS if any(device["bytes"].get(part) for device in held)]
    data = {"parts": [{"name": part, "colour": _colour(part)} for part in parts], "devices": held}
    title = "On-chip memory of each device, in MiB, against what its board has"
    legend = (*(Key(part, _colour(part)) for part in parts), Key("on board", "limit", "line"))
    return Section("Memory", _said(run, held), (Chart("memory", title, data, legend),), (_table(held, parts),))


def _of_layout(layout: Layout, device: DeviceLayout) -> dict[str, Any]:
    sums = dict.fromkeys(_PARTS, 0)
    for of in device.slices:
        sums["LPRAM"] += of.memory.lpram.block_ram_bytes
        sums["LGB"] += of.memory.lgb.block_ram_bytes
        sums["Act-RAM"] += of.memory.act_ram.block_ram_bytes
        sums["buffers"] += of.memory.working.block_ram_bytes - of.memory.act_ram.block_ram_bytes
    sums["BPRAM"], sums["BGB"] = device.bpram.block_ram_bytes, device.bgb.block_ram_bytes
    return {
        "device": device.device,
        "bytes": sums,
        "board": layout.room(device),
        "off_chip": device.off_chip_bytes,
        "missing": device.missing_bytes,
    }


def _of_usage(device: DeviceUsage) -> dict[str, Any]:
    of = device.memory
    sums = {"LPRAM": of.lpram, "LGB": of.lgb, "Act-RAM": of.act_ram, "BPRAM": of.bpram, "BGB": of.bgb}
    missing = max(0, sum(sums.values()) - of.board)
    return {"device": device.device, "bytes": sums, "board": of.board, "off_chip": of.off_chip, "missing": missing}


def _colour(part: str) -> str:
    return f"memory-{part.lower()}"


def _said(run: Run, held: list[dict[str, Any]]) -> str:
    fullest = max(held, key=_share)
    missing, off_chip = (sum(device[key] for device in held) for key in ("missing", "off_chip"))
    if missing:
        said = f"{format_bytes(missing)} do not fit on chip."
    else:
        said = "Everything fits on chip." if not off_chip else "Everything that is not kept off chip fits on chip."
    if off_chip:
        said += f" {format_bytes(off_chip)} of parameters, gradients and activations are off chip."
    where = f"Device {fullest['device']} is the fullest, with" if len(held) > 1 else "The device needs"
    said += f" {where} {percent(_share(fullest))} of its board's memory. {_MEANING}."
    if any(device["bytes"]["BPRAM"] for device in held):
        said += " BPRAM and BGB hold those of other devices."
    return said


def _share(device: dict[str, Any]) -> float:
    return float(sum(device["bytes"].values()) / device["board"])


def _table(held: list[dict[str, Any]], parts: list[str]) -> Table:
    extra = [
        (key, name) for key, name in (("off_chip", "off chip"), ("missing", "missing")) if any(d[key] for d in held)
    ]
    rows = [
        [
            str(device["device"]),
            *(format_bytes(device["bytes"][part]) if device["bytes"].get(part) else "–" for part in parts),
            format_bytes(device["board"]),
            percent(_share(device)),
            *(format_bytes(device[key]) if device[key] else "–" for key, _ in extra),
        ]
        for device in held
    ]
    return Table("Every device", ["device", *parts, "board", "of board", *(name for _, name in extra)], rows)
