"""The codec's benchmark: its data, what it counts and prints. Nothing here asks how fast it is."""

from __future__ import annotations

import importlib.util
import json
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from emuchain.benchmarks import codec as bench
from emuchain.benchmarks.frame import Pace
from emuchain.emulator.commands.command_line import commands


def nothing() -> None:
    pass


def test_most_gradients_are_below_the_bound() -> None:
    x = bench.gradients(100_000, 2.0**-10)
    assert np.mean(np.abs(x) < 2.0**-10) == pytest.approx(bench.ZERO_SHARE, abs=0.005)
    assert np.abs(x).max() < 1


def test_a_row() -> None:
    side = bench.Side("theirs", 3, 500, 0.25, nothing, nothing)
    row = bench.row_of(
        side, 2000, ([1e-6, 2e-6, 1e-6], [4e-6, 8e-6, 2e-6]), ([1e-6] * 3, [3e-6] * 3)
    )
    assert (row.size_ratio, row.compress_gbps, row.compress_ratio) == pytest.approx((4, 0.5, 4))
    assert (row.decompress_gbps, row.decompress_ratio, row.meets_bar) == (
        pytest.approx(2 / 3),
        pytest.approx(3),
        True,
    )
    slower = bench.row_of(side, 2000, ([1e-6], [4e-6]), ([1e-6], [2.9e-6]))
    assert not slower.meets_bar
    ours = bench.Row("ours", 7.28, 1e-3, 3.5, 1, 2.9, 1, None)
    assert not ours.meets_bar
    sheet = bench.sheet([row, ours], 16, -10)
    assert sheet.rows[0][-2:] == ("3", "met")
    assert sheet.rows[1] == (
        "ours",
        "7.28",
        "1.0e-03",
        "3.50 GB/s",
        "1.00",
        "2.90 GB/s",
        "1.00",
        "3 GB/s",
        "missed",
    )


def test_wrong_values_are_no_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        bench.Inceptionn, "decompress", lambda self, buffer, count: np.ones(count, np.float32)
    )
    with pytest.raises(
        ArithmeticError, match="inceptionn:-10: a value comes back with an error of"
    ):
        bench.measure(1000, -10, Pace(1, 0, 0))


@pytest.mark.parametrize("form", ["--json", "--markdown"])
def test_the_command(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    """Without peers: it says so, and measures the rest."""
    for name in bench.PEERS:
        monkeypatch.setitem(sys.modules, name, None)
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in bench.PEERS else find(name)
    )
    outcome = CliRunner().invoke(commands, ["bench", "codec", "--mebibytes", "1", form])
    assert outcome.exit_code == 0, outcome.output
    if form == "--markdown":
        assert "| inceptionn:-10 | " in outcome.output and "| memcpy | " in outcome.output
        assert "not measured: zfpy, blosc2 (`pip install 'emuchain[bench]'`)" in " ".join(
            outcome.output.split()
        )
        return
    report = json.loads(outcome.output)
    assert report["peers"] == {"zfpy": None, "blosc2": None}
    assert [row["name"] for row in report["rows"]] == ["inceptionn:-10", "memcpy"]
    assert all(
        row["compress_gbps"] > 0 and isinstance(row["meets_bar"], bool) for row in report["rows"]
    )


def test_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in bench.PEERS:
        pytest.importorskip(name)
    rows = bench.measure(1 << 14, -10, Pace(1, 0, 0))
    assert [row.name.split(",")[0] for row in rows] == [
        "inceptionn:-10",
        "memcpy",
        "zfp",
        "blosc2",
        "blosc2",
    ]
    assert [row.bar for row in rows] == [None, 0.25, 10, 1, 1]
