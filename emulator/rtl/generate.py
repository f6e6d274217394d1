"""Writes the RTL of a plan: the hand-written modules, and a top module for each device."""

from __future__ import annotations

import pathlib
import shutil

from ..plan import Plan
from .design import DeviceDesign
from .ports import inputs_of, outputs_of
from .top import Room, top_module
from .verilator import sources


def rooms_of(plan: Plan, design: DeviceDesign) -> tuple[Room, ...]:
    """Return how much the memories of a device's slices hold."""
    batch = plan.config.batch
    return tuple(Room(batch, batch * max(of.layer.input[1], of.layer.output[1])) for of in design.slices)


def generate(plan: Plan, designs: tuple[DeviceDesign, ...], folder: pathlib.Path) -> list[pathlib.Path]:
    """Write the RTL into a folder; return the files of the tops, by device."""
    folder.mkdir(parents=True, exist_ok=True)
    for module in sources():
        shutil.copyfile(module, folder / module.name)
    tops = []
    for design in designs:
        top = folder / f"{design.module}.sv"
        title = f"{plan.network.name} on {plan.devices} x {plan.cluster.boards[0].name}"
        top.write_text(top_module(design, rooms_of(plan, design), title), encoding="utf-8")
        tops.append(top)
    return tops


def ports_text(design: DeviceDesign) -> str:
    """Return `ports.inc` of a device, for `cpp/device.cpp`."""
    ins = "".join(f"IN({port.name}, {port.words})\n" for port in inputs_of(design))
    return ins + "".join(f"OUT({port.name}, {port.words})\n" for port in outputs_of(design))
