"""The benchmark of recurrent layers: what it counts and prints, and that wrong results are
refused.
"""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from emuchain.benchmarks import frame, recurrent
from emuchain.benchmarks.frame import Pace
from emuchain.benchmarks.recurrent import Layer, layers
from emuchain.kernels.llvm import rates

from .helpers import NEEDS_TORCH, keys_of, run_main

TINY = Layer("lstm", 3, 2, 4)


def test_operations_are_those_of_a_training_step() -> None:
    forward = (
        2 * 2 * 4 * 12 * (3 + 3)
    )  # of each sample and step, 12 channels of 3 inputs and 3 hidden units
    assert TINY.flop == 3 * forward
    assert dataclasses.replace(TINY, kind="gru").flop == 3 * forward * 3 / 4


def test_a_row_and_the_summary_of_rows() -> None:
    flop_s, byte_s = [1e-11, 2e-11, 4e-11], [1e-15] * 3
    row = recurrent.row_of(TINY, flop_s, byte_s, [2e-6, 1e-6, 4e-6], [6e-6, 2e-6, 4e-6])
    assert (row.seconds, row.torch_seconds, row.ratio, row.rounds) == (
        2e-6,
        4e-6,
        pytest.approx(2),
        3,
    )
    assert row.gflops == pytest.approx(TINY.flop / 2e3)
    assert (row.peak_gflops, row.read_gbps) == (pytest.approx(50), pytest.approx(1e6))
    unit = 1e-11 * TINY.flop  # the first round's bound; the others are 2 and 4 times as long
    assert row.bound_seconds == pytest.approx(2 * unit)
    assert row.bound_share == pytest.approx(
        unit / 1e-6
    )  # of unit / 2, 2 unit / 1, and 4 unit / 4 the median
    assert row.bound_ratio == pytest.approx(1e-6 / unit)  # of 6 / unit, 2 / 2 unit, and 4 / 4 unit
    alone = recurrent.row_of(TINY, [1e-11], [1e-15], [1e-6])
    assert (alone.torch_seconds, alone.ratio, alone.bound_ratio) == (None, None, None)
    assert recurrent.summarise([alone]) == []
    row = dataclasses.replace(row, bound_ratio=3.0)
    many = dataclasses.replace(row, batch=16, ratio=1.0)
    few, more = recurrent.summarise(
        [row, dataclasses.replace(row, batch=4, ratio=8.0, bound_ratio=12.0), many]
    )
    assert (few.batches, few.layers, few.ratio_geometric_mean, few.ratio_minimum) == (
        (2, 4),
        2,
        pytest.approx(4),
        2,
    )
    assert few.bound_ratio_geometric_mean == pytest.approx(6)
    assert (more.batches, more.layers, more.ratio_geometric_mean) == ((16,), 1, pytest.approx(1))


def test_the_bound_by_hand() -> None:
    layer = Layer("lstm", 10, 3, 5)
    assert layer.weight_bytes == 4 * 40 * 10
    product = 2 * 3 * 40 * 10  # operations of a step's product with R, or W
    assert layer.bound_s(1.0, 0.0) == 5 * 6 * product == layer.flop
    assert (
        layer.bound_s(1.0, 1.0) == 5 * 6 * product
    )  # 1,600 bytes are read while 2,400 operations are done
    assert layer.bound_s(1.0, 2.0) == 5 * (2 * 3200 + 4 * product)


@pytest.mark.parametrize("floats", [rates.ROW, 3 * rates.ROW, 3 * rates.ROW + 5])
def test_the_reading_loop_reads_all_whole_rows(floats: int) -> None:
    numbers = np.arange(floats, dtype=np.float32)
    whole = numbers[: floats // rates.ROW * rates.ROW]
    expected = float(whole.reshape(-1, rates.ROW // rates.READERS)[:, 0].sum())
    assert [rates.read(numbers, rounds) for rounds in (1, 2, 3)] == [expected] * 3


def test_too_little_to_read() -> None:
    with pytest.raises(ValueError, match=f"at least {rates.ROW}"):
        rates.read(np.ones(rates.ROW - 1, np.float32), 1)


def test_layers_of_all_kinds_batches_and_sizes() -> None:
    found = layers(["gru", "lstm"], [3, 5], [1, 2], 4)
    assert len(found) == 8
    assert (
        found[0] == Layer("gru", 3, 1, 4)
        and found[1] == Layer("gru", 5, 1, 4)
        and found[-1] == Layer("lstm", 5, 2, 4)
    )


@pytest.mark.parametrize("with_torch", [False, pytest.param(True, marks=NEEDS_TORCH)])
def test_recurrent_from_end_to_end(
    with_torch: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(frame, "Pace", lambda runs: Pace(runs, least_s=0.0, enough_s=0.0))
    arguments = [
        "recurrent",
        "--units",
        "3",
        "--units",
        "17",
        "--batch",
        "2",
        "--batch",
        "5",
        "--steps",
        "3",
    ]
    arguments += [] if with_torch else ["--no-torch"]
    assert run_main(*arguments, "--json") == 0
    found = json.loads(capfd.readouterr().out)
    assert set(found) == {"host", "threads", "runs", "rows", "summary"}
    expected = [
        (kind, batch, units) for kind in ("lstm", "gru") for batch in (2, 5) for units in (3, 17)
    ]
    assert [(row["kind"], row["batch"], row["units"]) for row in found["rows"]] == expected
    assert {key for row in found["rows"] for key in row} == keys_of("key of `rows`, recurrent")
    assert len(found["summary"]) == (4 if with_torch else 0)
    assert {key for row in found["summary"] for key in row} == (
        keys_of("key of `summary`, recurrent") if with_torch else set()
    )

    assert run_main(*arguments, "--markdown") == 0
    said = capfd.readouterr().out
    assert "| 5 | 17 |" in said
    first = said.splitlines()[0]
    assert ("LSTM, batch 2: " in first and "times as fast as PyTorch" in first) is with_torch
    words = " ".join(said.split())
    assert ("at this machine's bound" in words) is with_torch
    assert ("PyTorch was not measured" in words) is not with_torch


@NEEDS_TORCH
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_wrong_results_are_not_timed(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from emuchain.kernels.recurrent import GruSlice, LstmSlice, Tape

    slices = LstmSlice if kind == "lstm" else GruSlice
    right = slices.gradients

    def wrong(
        of: LstmSlice | GruSlice, tape: Tape, x: np.ndarray, *gradients: np.ndarray, fresh: bool
    ) -> None:
        right(of, tape, x, *gradients, fresh=fresh)
        gradients[1][0, 0] += 1

    monkeypatch.setattr(slices, "gradients", wrong)
    with pytest.raises(ArithmeticError, match=f"{kind} of 3 units: differs from PyTorch"):
        next(recurrent.measure([Layer(kind, 3, 2, 4)], Pace(7, 0.0, 0.0), frame.load_torch()))
