"""Counting the cells that Yosys makes of the RTL."""

import json
import shutil
from pathlib import Path

import pytest

from emuchain.emulator.cluster import Resources
from emuchain.emulator.common import InputError
from emuchain.emulator.rtl.resources import cells_of, resources_of, synthesise

SOURCES = Path(__file__).resolve().parents[3] / "emulator" / "rtl" / "sv"

STAT = """{"creator": "Yosys", "modules": {"\\\\top": {"num_cells": 9}}, "design": {"num_cells": 20,
"num_cells_by_type": {"CARRY4": 3, "DSP48E1": 2, "FDRE": 5, "FDSE": 1, "INV": 4, "LUT2": 3, "LUT6": 7, "MUXF7": 2,
"RAM32M": 2, "RAMB18E1": 1, "RAMB36E1": 3, "SRL16E": 2}}}"""


def test_cells_are_counted() -> None:
    """Carry chains, wide multiplexers and inverters take no LUT; memories of LUTs do."""
    assert resources_of(cells_of(json.loads(STAT))) == Resources(lut=3 + 7 + 2 * 4 + 2, ff=6, bram_banks=7, dsp=2)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("yosys") is None, reason="no yosys")
def test_a_multiply_add_takes_two_dsps(tmp_path: Path) -> None:
    """A product of 24 by 24 bits is one of 24 by 17 and one of 24 by 7; each register more takes FFs and no LUTs."""
    files = [SOURCES / f"{name}.sv" for name in ("fp32", "registers", "fp32_fma")]
    wire, piped = (synthesise("fp32_fma", files, {"LATENCY": latency}, tmp_path) for latency in (0, 4))
    assert (wire.dsp, wire.ff, wire.bram_banks) == (2, 0, 0)
    assert (piped.dsp, piped.bram_banks) == (2, 0)
    assert piped.ff > 100


@pytest.mark.skipif(shutil.which("yosys") is None, reason="no yosys")
def test_what_yosys_does_not_take_is_one_line(tmp_path: Path) -> None:
    source = tmp_path / "wrong.sv"
    source.write_text("module wrong (input logic a; endmodule\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"^Yosys does not take wrong: .*syntax error[^\n]*$"):
        synthesise("wrong", [source], {}, tmp_path)


def test_no_yosys_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="Yosys is needed .* not installed"):
        synthesise("fp32_fma", [], {}, tmp_path)
