"""The quantisers' benchmark: what it measures, counts and prints. Nothing here asks how fast it
is.
"""

from __future__ import annotations

import json
import sys
import types

import numpy as np
import pytest

from emuchain.benchmarks import frame
from emuchain.benchmarks import precision as bench
from emuchain.benchmarks.frame import Pace
from emuchain.kernels.number import BlockGrid, Rounding

from .helpers import NEEDS_TORCH, keys_of, run_main

ONCE = Pace(1, 0, 0)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    known = bench.formats()
    monkeypatch.setattr(
        bench, "formats", lambda: {name: known[name] for name in ("bf16", "fp8", "mxint8", "mxfp4")}
    )


def test_each_named_format_once() -> None:
    names = [*bench.formats()]
    assert {"bf16", "fp16", "fp8", "fp8-e5m2", "int8", "mxfp8", "mxfp6", "mxfp4", "mxint8"} < set(
        names
    )
    assert "fp32" not in names and "fp8-e4m3" not in names
    for name, grid in bench.formats().items():
        assert name in bench._KINDS or name in ("int8", "mxint8")
        assert isinstance(grid, BlockGrid) == name.startswith(("mx", "nv"))


def test_a_row() -> None:
    timings = {
        "": [1e-6, 2e-6, 1e-6],
        "ml_dtypes": [4e-6, 8e-6, 2e-6],
        "microxcaling": [9e-6, 9e-6, 9e-6],
    }
    row = bench.row_of("mxfp8", Rounding.EVEN, 2000, timings)
    assert (row.gbps, row.ml_dtypes_gbps, row.ml_dtypes_ratio) == pytest.approx((2, 0.5, 4))
    assert (row.microxcaling_ratio, row.torch_gbps, row.meets_bar) == (
        pytest.approx(9),
        None,
        False,
    )
    alone = bench.row_of("mxfp8", Rounding.AWAY, 2000, {"": [1e-6]})
    assert alone.meets_bar is None
    assert bench.row_of("bf16", Rounding.EVEN, 2000, {"": [1e-6], "ml_dtypes": [3.1e-6]}).meets_bar
    assert bench.sheet([row, alone], 16).rows[0][2:] == (
        *("2.00 GB/s", "0.50", "4.00", "-", "-", "0.22", "9.00", "missed"),
    )
    assert bench.answer([row, alone])[1:] == [
        "even: 2.00 to 2.00 GB/s",
        "away: 2.00 to 2.00 GB/s",
        "bars missed: mxfp8",
    ]


@pytest.mark.usefixtures("few")
def test_ml_dtypes() -> None:
    pytest.importorskip("ml_dtypes")
    rows = list(bench.measure(1 << 10, ONCE, ["ml_dtypes"]))
    assert [row.format for row in rows[::4]] == ["bf16", "fp8", "mxint8", "mxfp4"]
    assert [row.rounding for row in rows[:4]] == ["even", "away", "zero", "stochastic"]
    beside = [(row.format, row.rounding) for row in rows if row.ml_dtypes_gbps is not None]
    assert beside == [("bf16", "even"), ("fp8", "even"), ("mxfp4", "even")]


@NEEDS_TORCH
@pytest.mark.usefixtures("few")
def test_torch_and_microxcaling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of microxcaling, which PyPI has not, stands here what it would answer."""
    import torch

    def quantise(
        values: torch.Tensor, scale_bits: int, element: str, **how: object
    ) -> torch.Tensor:
        assert (scale_bits, how) == (8, {"axes": [-1], "block_size": 32, "round": "even"})
        grid = bench.formats()[{"int8": "mxint8", "fp4_e2m1": "mxfp4"}[element]]
        assert isinstance(grid, BlockGrid)
        floor = BlockGrid(grid.element, floor=True)
        return torch.from_numpy(bench.rounded(values.numpy(), floor, Rounding.EVEN))

    module = types.SimpleNamespace(_quantize_mx=quantise)
    monkeypatch.setitem(sys.modules, "mx.mx_ops", module)
    rows = [
        row
        for row in bench.measure(1 << 10, ONCE, ["torch", "microxcaling"])
        if row.rounding == "even"
    ]
    assert [row.torch_gbps is not None for row in rows] == [True, True, False, False]
    assert [row.microxcaling_gbps is not None for row in rows] == [False, False, True, True]
    module._quantize_mx = lambda values, *_, **__: values
    with pytest.raises(
        ArithmeticError, match="mxint8: .* of all numbers differ from those of microxcaling"
    ):
        list(bench.measure(1 << 10, ONCE, ["microxcaling"]))


def test_wrong_values_are_no_benchmark() -> None:
    with pytest.raises(
        ArithmeticError, match=r"fp8: 5\.0e-01 of all numbers differ from those of theirs"
    ):
        bench._check("theirs", "fp8", np.float32([1, 2]), np.float32([1, 3]))


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("form", ["--json", "--markdown"])
def test_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    """Without peers: it says so, and measures the rest."""
    monkeypatch.setattr(frame, "peer_versions", dict.fromkeys)
    monkeypatch.setattr("emuchain.benchmarks.frame.MOST_ROUNDS", 1)
    assert run_main("precision", "--runs", "7", form) == 0
    said = capsys.readouterr().out
    if form == "--markdown":
        assert "| bf16 | even | " in said
        assert "Not measured: ml_dtypes, torch, microxcaling." in " ".join(said.split())
        return
    report = json.loads(said)
    assert report["peers"] == dict.fromkeys(bench.PEERS)
    assert {*report["rows"][0]} == keys_of("key of `rows`, precision")
    assert all(row["gbps"] > 0 and row["meets_bar"] is None for row in report["rows"])
