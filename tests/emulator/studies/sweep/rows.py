"""Rows of a sweep made by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from emuchain.emulator.studies.sweep import Measured, Space, SweepResult


def row(devices: int, images_per_s: float | None, **keys: Any) -> dict[str, Any]:
    """A row with this rate; without one it fails."""
    figures = {field: keys.pop(field) for field in list(keys) if field in Measured.__annotations__}
    if images_per_s is None:
        measured = Measured(error="`devices`: too many")
    else:
        measured = Measured(
            boards=devices,
            images_per_s=images_per_s,
            efficiency=0.5,
            fits=True,
            missing_mib=0.0,
            off_chip_mib=0.0,
            memory_mib=1.0,
            bottleneck="FP of conv1[0:4] ICP on device 0",
            bottleneck_kind="engine",
        )
    fixed = {"network": "n", "cluster": "c", "devices": devices}
    return {**fixed, **keys, **dataclasses.asdict(dataclasses.replace(measured, **figures))}


def result(rows: Sequence[dict[str, Any]], **others: Sequence[Any]) -> SweepResult:
    """The result with these rows over devices and the keys `others`."""
    values = {
        "network": ("n",),
        "cluster": ("c",),
        "devices": tuple(dict.fromkeys(row["devices"] for row in rows)),
    }
    return SweepResult(Space({**values, **others}), list(rows))


def line(rates: Sequence[float | None], **figures: Any) -> SweepResult:
    """The result of 1, 2, 3, … boards with these rates."""
    return result([row(devices, rate, **figures) for devices, rate in enumerate(rates, 1)])
