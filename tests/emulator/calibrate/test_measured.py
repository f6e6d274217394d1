"""Real boards: HPCC FPGA's results of 2021 on 520N and U280 boards, where `EMUCHAIN_HPCC` names
their folder.

https://github.com/pc2/hpcc_fpga_eval_21, as CSV; without the folder these tests are skipped.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from emuchain.emulator.calibrate import calibrate_board, calibrate_link
from emuchain.emulator.calibrate.link import fit_link, messages_of
from emuchain.emulator.calibrate.reading import read_tables

from .synthetic import write_csv

FOLDER = Path(os.environ.get("EMUCHAIN_HPCC") or "/none")
pytestmark = pytest.mark.skipif(
    not os.environ.get("EMUCHAIN_HPCC"),
    reason="EMUCHAIN_HPCC names no folder with HPCC FPGA's results",
)
SERIAL = FOLDER / "beff_serial.csv"

BOARD_520N = """
name = "520N"
clock_mhz = 272.5
dsp = 5_760
dsp_share = 0.444444445
on_chip_memory_kbit = 234_420
bram = 11_721
bram_kbit = 20
off_chip_memory_gbytes = 32
off_chip_gbytes_per_s = 76.8
"""
"""Four banks of DDR4-2400; 2,560 of its DSPs multiply in GEMM's five replications, at 272.5 MHz."""


def serial_rows() -> list[dict[str, str]]:
    with SERIAL.open() as file:
        return list(csv.DictReader(file))


def written(path: Path, rows: Sequence[dict[str, str]]) -> Path:
    return write_csv(path, list(rows[0]), (row.values() for row in rows))


def test_serial_links() -> None:
    done = calibrate_link(SERIAL)
    constants = {constant.key: constant for constant in done.constants}
    assert constants["link.latency_ns"].value == pytest.approx(674.1, abs=0.3)
    assert constants["link.bandwidth_gbps"].value == pytest.approx(79.41, abs=0.02)
    assert done.fit.model.start_s == pytest.approx(117e-6, abs=3e-6)
    assert (done.fit.evidence.rows, done.fit.evidence.runs) == (84, 4)
    assert constants["link.latency_ns"].range[:2] == pytest.approx((671, 677), abs=1)
    left_out = done.fit.fitness.left_out
    assert left_out is not None
    assert left_out.held >= 0.85
    assert left_out.half_width <= 0.02
    assert done.warnings == ()


def test_each_run_follows_from_the_others(tmp_path: Path) -> None:
    rows = serial_rows()
    for run in {row["file"] for row in rows}:
        others = written(tmp_path / "others.csv", [row for row in rows if row["file"] != run])
        left = messages_of(read_tables([SERIAL], {"file": run}))
        errors = np.abs(fit_link(read_tables([others])).model.times(left) / left.times - 1)
        assert errors.mean() <= 0.0045
        assert errors.max() <= 0.033


def test_five_sizes_of_a_run_give_all_others(tmp_path: Path) -> None:
    rows = serial_rows()
    sizes = {"1", "256", "4096", "65536", "1048576"}
    for run in {row["file"] for row in rows}:
        few = [row for row in rows if row["file"] == run and row["message_bytes"] in sizes]
        model = fit_link(read_tables([written(tmp_path / "few.csv", few)])).model
        others = messages_of(
            read_tables([written(tmp_path / "o.csv", [row for row in rows if row["file"] != run])])
        )
        assert np.mean(np.abs(model.times(others) / others.times - 1)) <= 0.007


def test_what_is_printed_is_what_stands_in_the_table() -> None:
    printed = calibrate_link(FOLDER / "raw" / "beff_iec_N1-929862.txt")
    listed = calibrate_link(SERIAL, only={"file": "1_fpga/beff_iec_N1-929862.txt"})
    assert [constant.value for constant in printed.constants] == [
        constant.value for constant in listed.constants
    ]


def test_pcie_is_no_line_from_the_first_byte_on() -> None:
    run = {"file": "1_fpga/beff_pcie_N1-929861.txt"}
    done = calibrate_link(FOLDER / "beff_pcie.csv", only=run)
    assert any(warning.startswith("no line: rms ") for warning in done.warnings)
    assert (
        calibrate_link(FOLDER / "beff_pcie.csv", only=run, from_bytes=1024).fit.fitness.rms < 0.15
    )


def test_boards(tmp_path: Path) -> None:
    kind = tmp_path / "520n.toml"
    kind.write_text(BOARD_520N)
    done = calibrate_board([FOLDER / "stream.csv", FOLDER / "gemm.csv"], str(kind))
    constants = {constant.key: constant for constant in done.constants}
    assert constants["board.efficiency"].value == pytest.approx(0.883, abs=0.001)
    memory = constants["board.off_chip_gbytes_per_s"]
    assert memory.range.low / 76.8 < 0.853 < memory.value / 76.8 < 0.883 < memory.range.high / 76.8
    of_u280 = calibrate_board([FOLDER / "stream.csv", FOLDER / "gemm.csv"], "u280")
    assert of_u280.fit.evidence.rows == 10
    raw = calibrate_board(
        [FOLDER / "raw" / name for name in ("stream_N1-929870.out", "gemm_N1-929871.out")],
        str(kind),
    )
    assert {constant.key for constant in raw.constants} == constants.keys()


def test_a_report_of_the_bitstream(tmp_path: Path) -> None:
    kind = tmp_path / "520n.toml"
    kind.write_text(BOARD_520N)
    only = {"toolchain": "520n-21.2.0-20.4.0"}
    done = calibrate_board([FOLDER / "gemm.csv", FOLDER / "bitstreams.csv"], str(kind), only=only)
    values = {constant.key: constant.value for constant in done.constants}
    assert values["board.clock_mhz"] == 272.5
    assert round(values["board.dsp_share"] * 5760) == 3318
    assert values["board.efficiency"] == pytest.approx(0.883 * 2560 / 3318, abs=0.001)


def test_early_b_eff() -> None:
    """What b_eff 1.1 measured in 2020 on such boards, over the same links, two messages to a
    loop.
    """
    path = Path(os.environ.get("EMUCHAIN_WITNESSES") or "/none") / "hpcc2020_beff_520n.csv"
    if not path.exists():
        pytest.skip("EMUCHAIN_WITNESSES names no folder with hpcc2020_beff_520n.csv")
    constants = {constant.key: constant.value for constant in calibrate_link(path).constants}
    assert constants["link.bandwidth_gbps"] == pytest.approx(79.4, abs=0.1)
    assert constants["link.latency_ns"] == pytest.approx(633, abs=2)
