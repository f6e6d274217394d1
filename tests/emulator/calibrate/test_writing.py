"""Files that calibration writes: what stands in them, and that emuchain reads them."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
import pytest

from emuchain.emulator.calibrate import LinkCalibration, calibrate_board, calibrate_link
from emuchain.emulator.cluster import Fpga, board_keys, load_cluster
from emuchain.emulator.common import read_toml

from .synthetic import Link, messages_of, scattered, write_csv, write_messages


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """Five runs of a link."""
    draw = np.random.default_rng(11)
    links = [scattered(Link(), 0.01, draw) for _ in range(5)]
    return write_messages(tmp_path / 'a "quoted" name.csv', messages_of(links, draw))


def test_a_cluster_has_the_constants_and_their_ranges(tmp_path: Path, measured: Path) -> None:
    out = tmp_path / "mine.toml"
    done = calibrate_link(measured, out=out)
    assert out.read_text() == done.toml
    keys = read_toml(out)
    values = {constant.key: constant.value for constant in done.constants}
    assert keys["name"] == "mine"
    assert keys["boards"] == [{"type": "vc709"}]
    assert {f"link.{key}": value for key, value in keys["links"].items()} == values
    assert keys["uncertainty"].keys() == values.keys()
    for key, entry in keys["uncertainty"].items():
        assert entry.keys() == {"low", "high", "class", "from", "date"}
        assert entry["low"] < values[key] < entry["high"]
        assert entry["class"] == "measured"
        assert entry["from"] == str(done.fit.evidence)
        assert entry["date"] == datetime.date.today()
    assert done.fit.evidence.sha256 in keys["uncertainty"]["link.latency_ns"]["from"]
    assert 'a "quoted" name.csv: 105 rows, 5 runs' in keys["uncertainty"]["link.latency_ns"]["from"]


def test_a_cluster_of_measured_boards_loads(tmp_path: Path, measured: Path) -> None:
    """The board's file first, then links between such boards; a second calibration keeps the ranges
    of the first.
    """
    board, again, out = tmp_path / "board.toml", tmp_path / "again.toml", tmp_path / "cluster.toml"
    stream = write_csv(
        tmp_path / "stream.csv", ["function", "best_mbytes_per_s"], [["copy", 25_000]]
    )
    gemm = write_csv(tmp_path / "gemm.csv", ["matrix_size", "best_s"], [[4096, 1.4]])
    calibrate_board(stream, "vc709", out=board)
    calibrate_board(gemm, str(board), out=again)
    ranges = read_toml(again)["uncertainty"]
    assert ranges.keys() == {"board.off_chip_gbytes_per_s", "board.efficiency", "board.clock_mhz"}
    assert ranges["board.off_chip_gbytes_per_s"]["from"].startswith("stream.csv")
    clock = ranges["board.clock_mhz"]
    # Its part is in efficiency's.
    assert clock["low"] == clock["high"] == board_keys("vc709")["clock_mhz"]
    calibrate_board(gemm, str(again), out=again.with_name("third.toml"))
    calibrate_link(measured, out=out, type=str(again))
    cluster = load_cluster(str(out))
    fpga = cluster.board(0)
    assert isinstance(fpga, Fpga)
    assert fpga.off_chip_gbytes_per_s == 25
    assert fpga.efficiency == read_toml(again)["efficiency"] < 1
    assert cluster.link.latency_ps == round(read_toml(out)["links"]["latency_ns"] * 1000)
    assert cluster.link.bandwidth_mbps == round(read_toml(out)["links"]["bandwidth_gbps"] * 1000)


def test_nothing_is_written_without_a_name(
    tmp_path: Path, measured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    assert isinstance(calibrate_link(measured), LinkCalibration)
    assert sorted(tmp_path.iterdir()) == before


def test_the_picture_is_drawn(tmp_path: Path, measured: Path) -> None:
    pytest.importorskip("matplotlib")
    plot = tmp_path / "link.svg"
    calibrate_link(measured, plot=plot)
    text = plot.read_text()
    assert "90 % of further messages" in text.replace("<!-- ", "")


def test_the_ranges_are_read_again(tmp_path: Path, measured: Path) -> None:
    out, board = tmp_path / "cluster.toml", tmp_path / "board.toml"
    gemm = write_csv(tmp_path / "gemm.csv", ["matrix_size", "best_s"], [[4096, 0.1313]])
    of_board = calibrate_board(gemm, "vc709", out=board)
    of_link = calibrate_link(measured, out=out, type=str(board))
    cluster = load_cluster(str(out))
    entries = {entry.key: entry for entry in (*cluster.ranges, *cluster.board(0).ranges)}
    for constant in (*of_link.constants, *of_board.constants):
        entry = entries[constant.key]
        assert entry.kind == "measured"
        assert (entry.low * constant.value, entry.high * constant.value) == pytest.approx(
            constant.range[:2]
        )
    assert entries["board.clock_mhz"].is_exact
