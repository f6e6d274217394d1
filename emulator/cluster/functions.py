"""What special function units are built of, beside multiply-adds: exponentials and divisions.

Each type of DSPs has one of both in single precision, one result a cycle, with the DSPs, LUTs and
FFs of it and who says so. Roots are counted as divisions, logarithms as exponentials; tables in
block RAM are left out. Multiply-adds are the type's own of single precision (`multipliers.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from .multipliers import Origin


@dataclasses.dataclass(frozen=True)
class FunctionCore:
    """A pipeline of one function as it is built: its DSPs, LUTs and FFs, and who says so."""

    dsp: int
    lut: int
    ff: int
    origin: Origin
    source: str


_VITIS = "Vitis HLS 2022.1 for a U280: fexp 7 DSPs, 748 LUTs, 316 FFs"
_EXP = "Intel 683750, Arria V: 718 ALMs, each counted as two LUTs, 643 FFs, 2 DSPs"
_DIVIDE = "Intel 683750, Arria V: 456 ALMs, each counted as two LUTs, 871 FFs, 4 DSPs"


def _of_intel(origin: Origin) -> tuple[FunctionCore, FunctionCore]:
    return (
        FunctionCore(2, 1436, 643, origin, _EXP),
        FunctionCore(4, 912, 871, origin, _DIVIDE),
    )


def _of_amd(origin: Origin) -> tuple[FunctionCore, FunctionCore]:
    return FunctionCore(7, 748, 316, origin, _VITIS), _of_intel("assumed")[1]


FUNCTIONS: Mapping[str, tuple[FunctionCore, FunctionCore]] = {
    "DSP48E1": _of_amd("assumed"),
    "DSP48E2": _of_amd("synthesised"),
    "DSP58": _of_amd("assumed"),
    "Stratix V": _of_intel("data sheet"),
    "Stratix 10": _of_intel("assumed"),
    "Agilex 5": _of_intel("assumed"),
    "Agilex 7": _of_intel("assumed"),
}
"""An exponential and a division, by type of DSPs. Arria V has Stratix V's ALMs and DSPs."""
