"""The table of `scripts/rtl-resources` in docs/rtl.md: its sums, and the plan's columns. Yosys
would take minutes.
"""

import dataclasses
from fractions import Fraction
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest

import emuchain
from emuchain.emulator.cluster import DSP_TYPES, Resources
from emuchain.emulator.rtl.resources import planned_resources

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def script() -> Any:
    """The script as a module."""
    loader = SourceFileLoader("rtl_resources", str(ROOT / "scripts" / "rtl-resources"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def built() -> dict[str, tuple[str, Resources]]:
    """Each row of the document by its name: the line, and what was built."""
    text = (ROOT / "docs" / "rtl.md").read_text(encoding="utf-8")
    table = text[text.index("| what | DSP | LUT | FF | BRAM |") :].split("\n\n")[0].splitlines()[2:]
    rows = {}
    for line in table:
        name, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        dsp, lut, ff, banks = (int(cell.replace(",", "")) for cell in cells[:4])
        rows[name] = (line, Resources(lut, ff, banks, dsp))
    return rows


def test_devices_are_the_sums_of_their_parts(
    built: dict[str, tuple[str, Resources]], script: Any
) -> None:
    for device in range(script.DEVICES):
        parts = [
            found for name, (_, found) in built.items() if name.startswith(f"device {device}: ")
        ]
        assert len(parts) == 6
        assert sum(parts, Resources()) == built[f"device {device}"][1]


def test_the_plan_and_the_ratios_are_right(
    built: dict[str, tuple[str, Resources]], script: Any, tmp_path: Path
) -> None:
    (tmp_path / "tiny.toml").write_text(script.NETWORK, encoding="utf-8")
    (tmp_path / "small.toml").write_text(script.CLUSTER, encoding="utf-8")
    files = str(tmp_path / "tiny.toml"), str(tmp_path / "small.toml")
    plan = emuchain.plan(
        *files, devices=script.DEVICES, schedule="sync", batch=2, samples=2, micro_batch=2
    )
    board = script.counted_board()
    planned = {f"tile of {taps}": board.engine_resources([taps])[0] for taps in script.TILES}
    for device, layout in enumerate(plan.layout().devices):
        engines, buffers = planned_resources(layout)
        planned |= {f"device {device}: tiles": engines, f"device {device}: memories": buffers}
        planned[f"device {device}"] = engines + buffers
    for name, (line, found) in built.items():
        assert line == script.row(name, found, planned.pop(name, None))
    assert not planned


def test_blocks_are_the_implementations(script: Any) -> None:
    """What the document says of units is what a board's multipliers take."""
    text = (ROOT / "docs" / "rtl.md").read_text(encoding="utf-8")
    rows = {
        name.strip(): [cell.strip().replace(",", "") for cell in cells]
        for _, name, *cells, _ in (
            line.split("|") for line in text.splitlines() if line.startswith("| dot:")
        )
    }
    engines = {it.products: it for it in DSP_TYPES["DSP48E2"].built if it.products}
    assert {*engines} == {*script.DOTS} and len(rows) == 2 * len(engines)
    for dot, it in engines.items():
        sums, more = (
            rows[f"dot:{dot}, {of}"] for of in ("sums of a unit", "a unit more of an engine")
        )
        assert (it.dsp, it.lut, it.ff) == (Fraction(more[3]), int(more[4]), int(more[5]))
        assert it.low == pytest.approx(int(sums[1]) / int(more[1]), abs=0.006)
        for cells in (sums, more):
            taken = Resources(int(cells[1]), int(cells[2]), 0, int(cells[0]))
            assert script.dot_row("x", taken, 2 * dot).replace(",", "").split("|")[2:-1] == [
                f" {cell} " for cell in cells
            ]


def test_a_unit_more_is_a_difference(script: Any) -> None:
    one, two = Resources(5652, 3974, 0, 32), Resources(8987, 5898, 0, 64)
    exact, add = Resources(377, 512, 0, 32), Resources(1004, 319)
    assert script.dot_rows(32, exact, add, [one, two]) == [
        "| dot:32, sums of a unit | 32 | 2,385 | 1,150 | 1/2 | 38 | 18 |",
        "| dot:32, a unit more of an engine | 32 | 3,335 | 1,924 | 1/2 | 53 | 31 |",
    ]


def test_a_row_says_how_many_times_the_plan(script: Any) -> None:
    planned = Resources(lut=10, ff=0, bram_banks=3, dsp=2)
    found = dataclasses.replace(planned, lut=25, ff=7)
    assert (
        script.row("x", found, planned) == "| x | 2 | 25 | 7 | 3 | 2 | 10 | 0 | 3 | 1.0 | 2.5 | - |"
    )
