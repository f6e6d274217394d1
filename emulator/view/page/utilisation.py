"""Utilisation: how busy engines and links of each device were over the run, as a heat map."""

from __future__ import annotations

from ...common import percent
from ...run import PHASES, DeviceUsage, Usage
from .parts import Chart, Section, Table
from .source import Run

_RIGHT, _LEFT = "link →", "link ←"


def utilisation(run: Run) -> Section | None:
    """Return the section; None before the first epoch."""
    usage = run.usage
    if usage is None:
        return None
    columns = [*PHASES, "idle", *([_RIGHT, _LEFT] if usage.links else [])]
    shares = [_shares(run, usage, device) for device in usage.devices]
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
    return Section("Utilisation", said, (chart,), (_table(usage, columns, shares),))


def _shares(run: Run, usage: Usage, device: DeviceUsage) -> dict[str, float]:
    """Return the busy shares of a device's engines and of the links on which it sends, and its idle share.

    The idle share weights engines by multipliers; without a plan these are not known one by one, and count alike.
    """
    weights = dict.fromkeys(device.busy, 1)
    if run.plan is not None:
        held = run.plan.timing.engines[device.device]
        for phase, engines in zip(PHASES, zip(*((of.fp, of.eb, of.pg) for of in held), strict=True), strict=True):
            weights[phase] = sum(engine.multipliers for engine in engines if engine is not None)
    busy = sum(weights[phase] * share for phase, share in device.busy.items())
    total = sum(weights[phase] for phase in device.busy)
    links = {
        _RIGHT if link.receiver > link.sender else _LEFT: link.utilisation
        for link in usage.links
        if link.sender == device.device
    }
    return {**device.busy, "idle": 1 - busy / total, **links}


def _table(usage: Usage, columns: list[str], shares: list[dict[str, float]]) -> Table:
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
