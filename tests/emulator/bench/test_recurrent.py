"""The benchmark of recurrent layers: what it counts and prints, and that wrong results are refused."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from emuchain.emulator.bench import peer, recurrent, stopwatch
from emuchain.emulator.bench.recurrent_shapes import Layer, layers
from emuchain.emulator.bench.stopwatch import Pace

from .helpers import NEEDS_TORCH, keys_of, run_main

TINY = Layer("lstm", 3, 2, 4)


def test_operations_are_those_of_a_training_step() -> None:
    forward = 2 * 2 * 4 * 12 * (3 + 3)  # of each sample and step, 12 channels of 3 inputs and 3 hidden units
    assert TINY.flop == 3 * forward
    assert dataclasses.replace(TINY, kind="gru").flop == 3 * forward * 3 / 4


def test_a_row_and_the_summary_of_rows() -> None:
    row = recurrent.row_of(TINY, [2e-6, 1e-6, 4e-6], [6e-6, 2e-6, 4e-6])
    assert (row.seconds, row.torch_seconds, row.ratio, row.rounds) == (2e-6, 4e-6, pytest.approx(2), 3)
    assert row.gflops == pytest.approx(TINY.flop / 2e3)
    alone = recurrent.row_of(TINY, [1e-6])
    assert (alone.torch_seconds, alone.ratio) == (None, None)
    assert recurrent.summarise([alone]) == []
    many = dataclasses.replace(row, batch=16, ratio=1.0)
    few, more = recurrent.summarise([row, dataclasses.replace(row, batch=4, ratio=8.0), many])
    assert (few.batches, few.layers, few.ratio_geometric_mean, few.ratio_minimum) == ((2, 4), 2, pytest.approx(4), 2)
    assert (more.batches, more.layers, more.ratio_geometric_mean) == ((16,), 1, pytest.approx(1))


def test_layers_of_all_kinds_batches_and_sizes() -> None:
    found = layers(["gru", "lstm"], [3, 5], [1, 2], 4)
    assert len(found) == 8
    assert (
        found[0] == Layer("gru", 3, 1, 4) and found[1] == Layer("gru", 5, 1, 4) and found[-1] == Layer("lstm", 5, 2, 4)
    )


@pytest.mark.parametrize("with_torch", [False, pytest.param(True, marks=NEEDS_TORCH)])
def test_recurrent_from_end_to_end(
    with_torch: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stopwatch, "Pace", lambda runs: Pace(runs, least_s=0.0, enough_s=0.0))
    arguments = ["recurrent", "--units", "3", "--units", "17", "--batch", "2", "--batch", "5", "--steps", "3"]
    arguments += [] if with_torch else ["--no-torch"]
    assert run_main(*arguments, "--json") == 0
    found = json.loads(capfd.readouterr().out)
    assert set(found) == {"host", "threads", "runs", "rows", "summary"}
    expected = [(kind, batch, units) for kind in ("lstm", "gru") for batch in (2, 5) for units in (3, 17)]
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
    assert ("PyTorch was not measured" in said) is not with_torch


@NEEDS_TORCH
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_wrong_results_are_not_timed(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from emuchain.kernels import recurrent as ours

    name = f"{kind}_backward"
    right = getattr(ours, name)

    def wrong(saved: ours.Saved, dy: np.ndarray) -> tuple[np.ndarray, ...]:
        found = right(saved, dy)
        found.dr[0, 0] += 1
        return tuple(found)

    monkeypatch.setattr(ours, name, wrong)
    with pytest.raises(ArithmeticError, match=f"{kind} of 3 units: differs from PyTorch"):
        next(recurrent.measure([Layer(kind, 3, 2, 4)], Pace(7, 0.0, 0.0), peer.load()))
