"""The constants of a board from STREAM, GEMM and a bitstream's report."""

from __future__ import annotations

from pathlib import Path

import pytest

from emuchain.emulator.calibrate import BoardFit, calibrate_board
from emuchain.emulator.cluster import board_keys
from emuchain.emulator.common import InputError

from .synthetic import write_csv

BOARD = """
name = "ours"
clock_mhz = 250
dsp = 2000
dsp_share = 0.5
on_chip_memory_kbit = 50_000
off_chip_gbytes_per_s = 20
off_chip_memory_gbytes = 8
source = "its \\"data\\" sheet"
"""
"""It does 250 · 10^9 MACs/s."""


@pytest.fixture
def kind(tmp_path: Path) -> str:
    path = tmp_path / "ours.toml"
    path.write_text(BOARD)
    return str(path)


def stream(folder: Path, fpgas: int = 1) -> Path:
    """Three runs; reading and writing differ by function."""
    rates = {"copy": 16_000, "scale": 16_000, "add": 17_000, "triad": 17_000, "pci-read": 5_000}
    rows = [
        [f"run{run}", name, rate * run**0.01 * fpgas, fpgas]
        for run in (1, 2, 3)
        for name, rate in rates.items()
    ]
    return write_csv(
        folder / f"stream{fpgas}.csv", ["file", "function", "best_mbytes_per_s", "fpgas"], rows
    )


def gemm(folder: Path, share: float = 0.8, fpgas: int = 1) -> Path:
    """Three runs that reach a share of what the board does."""
    rows = [[f"run{run}", 4096, 4096**3 / (250e9 * share * run**0.01), fpgas] for run in (1, 2, 3)]
    return write_csv(folder / f"gemm{share}.csv", ["file", "matrix_size", "best_s", "fpgas"], rows)


def values(folder: Path, kind: str, *files: Path) -> dict[str, float]:
    return {constant.key: constant.value for constant in calibrate_board(files, kind).constants}


def test_memory_is_the_mean_of_functions_and_its_range_holds_each(
    tmp_path: Path, kind: str
) -> None:
    done = calibrate_board(stream(tmp_path), kind)
    [constant] = done.constants
    assert constant.key == "board.off_chip_gbytes_per_s"
    assert constant.value == pytest.approx((16 * 17) ** 0.5 * 6 ** (0.01 / 3), abs=1e-3)
    assert constant.range.low < 16 < 17 * 3**0.01 < constant.range.high
    assert isinstance(done.fit, BoardFit)
    assert [thing.what for thing in done.fit.measured] == ["copy", "scale", "add", "triad"]


def test_efficiency_is_the_share_of_what_the_board_does(tmp_path: Path, kind: str) -> None:
    done = calibrate_board(gemm(tmp_path), kind)
    [constant] = done.constants
    assert (constant.key, constant.unit) == ("board.efficiency", "")
    assert constant.value == pytest.approx(0.8 * 6 ** (0.01 / 3), abs=1e-4)
    assert done.fit.evidence.runs == 3
    assert any("without a bitstream's report" in sentence for sentence in done.left_open)


def test_sums_over_boards_are_divided_by_their_number(tmp_path: Path, kind: str) -> None:
    assert values(tmp_path, kind, stream(tmp_path, 4)) == pytest.approx(
        values(tmp_path, kind, stream(tmp_path))
    )
    one = values(tmp_path, kind, gemm(tmp_path, 0.8))
    assert values(tmp_path, kind, gemm(tmp_path, 0.4, fpgas=2))[
        "board.efficiency"
    ] == pytest.approx(one["board.efficiency"] / 2, abs=1e-4)


def test_gflops_are_of_all_boards(tmp_path: Path, kind: str) -> None:
    path = write_csv(tmp_path / "g.csv", ["matrix_size", "gflops", "fpgas"], [[4096, 800, 2]])
    assert values(tmp_path, kind, path) == {"board.efficiency": 0.8}


def test_a_report_gives_clock_and_dsps(tmp_path: Path, kind: str) -> None:
    """The rate of products stays what it was."""
    report = write_csv(
        tmp_path / "b.csv",
        ["benchmark", "clock_mhz", "dsp_used"],
        [["GEMM", 200, 1600], ["FFT", 1, 2]],
    )
    done = calibrate_board([gemm(tmp_path), report], kind)
    constants = {constant.key: constant for constant in done.constants}
    assert {key: constant.value for key, constant in constants.items()} == pytest.approx(
        {
            "board.clock_mhz": 200,
            "board.dsp_share": 0.8,
            "board.efficiency": 0.625 * 6 ** (0.01 / 3),
        },
        abs=1e-4,
    )
    assert constants["board.clock_mhz"].range[:2] == (200, 200)
    assert any("the bitstream's report fixes" in sentence for sentence in done.left_open)


def test_more_than_the_data_sheet_allows_is_reported(tmp_path: Path, kind: str) -> None:
    done = calibrate_board(gemm(tmp_path, 1.2), kind)
    assert [constant.value for constant in done.constants] == [1.0]
    assert any("`efficiency` = 1 is written" in warning for warning in done.warnings)
    fast = write_csv(tmp_path / "s.csv", ["function", "best_mbytes_per_s"], [["copy", 30_000]])
    assert any(
        "1.5 times the 20 GB/s" in warning for warning in calibrate_board(fast, kind).warnings
    )


def test_outliers_are_left_out(tmp_path: Path, kind: str) -> None:
    rows = [[f"run{run}", "copy", 48_000 if run == 4 else 16_000 + run] for run in range(1, 7)]
    path = write_csv(tmp_path / "s.csv", ["run", "function", "best_mbytes_per_s"], rows)
    done = calibrate_board(path, kind)
    assert done.constants[0].value == pytest.approx(16, rel=1e-3)
    assert any(
        f"1 outlier of copy left out: {path}:5 (3 times)" in warning for warning in done.warnings
    )


def test_rows_of_the_board_of_that_name_are_taken(tmp_path: Path, kind: str) -> None:
    rows = [["Ours", "copy", 16_000], ["other", "copy", 1_000]]
    path = write_csv(tmp_path / "s.csv", ["board", "function", "best_mbytes_per_s"], rows)
    assert calibrate_board(path, kind).constants[0].value == 16
    assert calibrate_board(path, kind, only={"board": "other"}).constants[0].value == 1
    with pytest.raises(InputError, match="no row has `board` = 'none'; there are Ours, other"):
        calibrate_board(path, kind, only={"board": "none"})


def test_a_gpu_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="`type` = 'p100': is no FPGA"):
        calibrate_board(gemm(tmp_path), "p100")
    with pytest.raises(InputError, match="`type` = 'vc70': did you mean `vc709`"):
        calibrate_board(gemm(tmp_path), "vc70")


def test_the_board_written_is_the_type_with_its_constants(tmp_path: Path, kind: str) -> None:
    out = tmp_path / "board.toml"
    done = calibrate_board([stream(tmp_path), gemm(tmp_path)], kind, out=out)
    assert out.read_text() == done.toml
    keys, before = board_keys(str(out)), board_keys(kind)
    values = {constant.key.removeprefix("board."): constant.value for constant in done.constants}
    ranges = {"uncertainty", "next_measurement"}
    assert {key: value for key, value in keys.items() if key not in ranges} == {**before, **values}
