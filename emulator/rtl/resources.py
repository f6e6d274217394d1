"""What RTL takes of a Xilinx 7 series FPGA, beside what `plan` says by FPDeep's equations (docs/resources.md)."""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections import Counter
from collections.abc import Mapping

from ..cluster import Resources
from ..plan import DeviceLayout
from .generate import Rtl
from .verilator import sources
from .yosys import module_name, synthesise

_LUT = re.compile(r"LUT[1-6]")
_LUT_MEMORY: Mapping[str, int] = {
    **{"SRL16E": 1, "SRLC32E": 1, "RAM32X1S": 1, "RAM64X1S": 1, "RAM128X1S": 2, "RAM256X1S": 4},
    **{"RAM32X1D": 2, "RAM64X1D": 2, "RAM128X1D": 4, "RAM32M": 4, "RAM64M": 4},
}
"""LUTs of a shift register or of a memory built of LUTs (Xilinx UG474)."""

_FF = re.compile(r"FD[RSCP]E(_1)?|LD[CP]E")
_BRAM_BANKS: Mapping[str, int] = {"RAMB18E1": 1, "RAMB36E1": 2}
"""Banks of 18 kbit."""

TILES, SUMS, MEMORIES, UPDATE, SFU, CONTROL = "tiles", "sums", "memories", "update", "SFU", "control"
ROUNDING = "rounding"
PARTS: Mapping[str, str] = {
    **dict.fromkeys(("tile",), TILES),
    **dict.fromkeys(("engine", "gradient_sums"), SUMS),
    **dict.fromkeys(("row_ram", "lpram", "row_fifo", "row_join", "pack_row", "with_scales"), MEMORIES),
    **dict.fromkeys(("round_rows", "on_grid", "weight_blocks"), ROUNDING),
    **dict.fromkeys(("update",), UPDATE),
    **dict.fromkeys(("bias", "relu", "max_pool"), SFU),
}
"""The part of a device that a module belongs to, with all below it that belongs to none; the rest is `CONTROL`."""

_WHOLE = (UPDATE, SFU)
"""Parts to which all below them belongs."""


@dataclasses.dataclass(frozen=True)
class DeviceResources:
    """What a device takes after synthesis, by part, and what the plan says: of its engines, and of its buffers."""

    device: int
    parts: Mapping[str, Resources]
    engines: Resources
    buffers: Resources

    @property
    def built(self) -> Resources:
        """Of the whole device."""
        return sum(self.parts.values(), Resources())

    @property
    def planned(self) -> Resources:
        """Of the whole device, by the plan."""
        return self.engines + self.buffers


def device_resources(yosys: str, rtl: Rtl, device: int, top: pathlib.Path, scratch: pathlib.Path) -> DeviceResources:
    """Synthesise a device of `rtl` whose top module is in the file `top`; return what it takes.

    Raises:
        InputError: Yosys rejects it.
    """
    cells = synthesise(yosys, top.stem, [*sources(), top], {}, scratch)
    parts = {part: resources_of(cells_of_part) for part, cells_of_part in cells_by_part(cells, f"\\{top.stem}").items()}
    return DeviceResources(device, parts, *planned_resources(rtl.plan.layout().devices[device]))


def planned_resources(layout: DeviceLayout) -> tuple[Resources, Resources]:
    """Return what the plan says of a device: of its engines, and of all else, which are its buffers."""
    by_slice = layout.board.slice_resources([held.engines.multipliers for held in layout.slices])
    engines = sum(by_slice, Resources())
    every = layout.resources
    buffers = Resources(
        every.lut - engines.lut, every.ff - engines.ff, every.bram_banks - engines.bram_banks, every.dsp - engines.dsp
    )
    return engines, buffers


def cells_by_part(modules: Mapping[str, Mapping[str, int]], top: str) -> dict[str, dict[str, int]]:
    """Return the cells of a module and all below it by `PARTS`, and in those by type; `modules` are of `modules_of`."""
    by_part: dict[str, Counter[str]] = {}

    def add(module: str, part: str, times: int) -> None:
        if part not in _WHOLE:
            part = PARTS.get(module_name(module), part)
        for kind, count in modules[module].items():
            below = kind if kind in modules else f"\\{kind}"
            if below in modules:
                add(below, part, times * count)
            else:
                by_part.setdefault(part, Counter())[kind] += times * count

    add(top, CONTROL, 1)
    return {part: dict(cells) for part, cells in by_part.items()}


def all_cells(modules: Mapping[str, Mapping[str, int]], top: str) -> dict[str, int]:
    """Return the cells of a module and all below it, by type."""
    total: Counter[str] = Counter()
    for cells in cells_by_part(modules, top).values():
        total.update(cells)
    return dict(total)


def resources_of(cells: Mapping[str, int]) -> Resources:
    """Return the resources of cells of the 7 series.

    Inverters are not counted: they become part of the LUTs around them. Neither are carry chains and wide multiplexers,
    which slices have beside their LUTs.
    """
    return Resources(
        lut=sum(count * (1 if _LUT.fullmatch(kind) else _LUT_MEMORY.get(kind, 0)) for kind, count in cells.items()),
        ff=sum(count for kind, count in cells.items() if _FF.fullmatch(kind)),
        bram_banks=sum(count * _BRAM_BANKS.get(kind, 0) for kind, count in cells.items()),
        dsp=cells.get("DSP48E1", 0),
    )
