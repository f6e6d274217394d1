"""The RTL of a plan as files: the hand-written modules, and a top module for each device."""

from __future__ import annotations

import dataclasses
import pathlib

from ..common import InputError, write_whole
from ..plan import ChainPlan
from .clock import clocks_of, run_mini_batches
from .design import DeviceDesign, Room, designs_of
from .drawn import MINI_BATCHES
from .ports import inputs_of, outputs_of
from .top import top_module
from .verilator import sources


@dataclasses.dataclass(frozen=True)
class Rtl:
    """The RTL of a plan: its devices, the room of each slice, and when all have updated, by mini-batch, in ps."""

    plan: ChainPlan
    devices: tuple[DeviceDesign, ...]
    rooms: tuple[tuple[Room, ...], ...]
    updated_ps: tuple[int, ...]

    @classmethod
    def of(cls, plan: ChainPlan, latency: int = 0) -> Rtl:
        """Return the RTL of a plan, with multiply-adds of `latency` cycles; memories hold what mini-batches need.

        Raises:
            InputError: something in the plan has no RTL; the message says what has.
        """
        devices = designs_of(plan, latency)
        clocks = clocks_of(plan, devices)
        updated_ps = run_mini_batches(clocks, plan.config.batch, MINI_BATCHES)
        rooms = tuple(tuple(part.room for part in clock.parts) for clock in clocks)
        return cls(plan, devices, rooms, updated_ps)

    def top(self, device: int) -> str:
        """Return the text of a device's top module."""
        title = f"{self.plan.network.name} on {self.plan.devices} x {self.plan.cluster.boards[0].name}"
        return top_module(self.devices[device], self.rooms[device], title)

    def write(self, folder: pathlib.Path) -> list[pathlib.Path]:
        """Write all modules into a folder; return the files of the tops, by device.

        Raises:
            InputError: it cannot be written.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"`out` = {str(folder)!r}: {error.strerror}; give a folder that can be written") from None
        for module in sources():
            write_whole(folder / module.name, module.read_bytes())
        tops = [folder / f"{device.module}.sv" for device in self.devices]
        for device, top in enumerate(tops):
            write_whole(top, self.top(device))
        return tops


def ports_text(design: DeviceDesign) -> str:
    """Return `ports.inc` of a device, for `cpp/device.cpp`."""
    ins = "".join(f"IN({port.name}, {port.words})\n" for port in inputs_of(design))
    return ins + "".join(f"OUT({port.name}, {port.words})\n" for port in outputs_of(design))
