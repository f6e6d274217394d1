"""The benchmark of attention: what it counts and prints, and that wrong results are refused."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from emuchain.benchmarks import attention, frame
from emuchain.benchmarks.attention import SHAPES, Heads
from emuchain.benchmarks.frame import Pace

from .helpers import NEEDS_TORCH, keys_of, run_main

TINY = Heads(2, 5, 3, 4, causal=True)
FULL = Heads(1, 6, 2, 3, causal=False)


def test_operations_are_those_of_the_keys_that_are_seen() -> None:
    assert TINY.flop("FP") == 2 * 2 * (2 * 3 * 4 * 15)
    assert TINY.flop("step") == 2 * 7 * (2 * 3 * 4 * 15)
    assert FULL.flop("FP") == 2 * 2 * (2 * 3 * 36)


def test_bars() -> None:
    assert {heads.bar for heads in SHAPES if heads.causal and heads.tokens >= 128} == {1.7}
    assert {heads.bar for heads in SHAPES if not heads.causal or heads.tokens < 128} == {1.2}


def test_a_row_and_the_summary_of_rows() -> None:
    row = attention.row_of(
        TINY, "step", [1e-11, 2e-11, 4e-11], [2e-6, 1e-6, 4e-6], [6e-6, 2e-6, 4e-6]
    )
    assert (row.seconds, row.torch_seconds, row.ratio, row.rounds) == (
        2e-6,
        4e-6,
        pytest.approx(2),
        3,
    )
    assert (row.gflops, row.peak_gflops) == (
        pytest.approx(TINY.flop("step") / 2e3),
        pytest.approx(50),
    )
    assert row.peak_share == pytest.approx(
        TINY.flop("step") * 1e-11 / 1e-6
    )  # of 1/2, 2/1 and 4/4 the median
    assert row.bar == 1.2 and row.meets_bar
    slow = dataclasses.replace(row, ratio=0.5)
    assert attention.summarise([row, slow]) == [
        attention.Summary("step", 2, pytest.approx(1), 0.5, 1)
    ]
    alone = attention.row_of(TINY, "FP", [1e-11], [1e-6])
    assert (alone.torch_seconds, alone.ratio, alone.bar, alone.meets_bar) == (
        None,
        None,
        None,
        None,
    )
    assert attention.summarise([alone]) == []


@pytest.mark.parametrize("with_torch", [False, pytest.param(True, marks=NEEDS_TORCH)])
def test_attention_from_end_to_end(
    with_torch: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(frame, "Pace", lambda runs: Pace(runs, least_s=0.0, enough_s=0.0))
    monkeypatch.setattr(attention, "SHAPES", (TINY, FULL))
    arguments = ["attention"] if with_torch else ["attention", "--no-torch"]
    assert run_main(*arguments, "--json") == 0
    found = json.loads(capfd.readouterr().out)
    assert set(found) == {"host", "threads", "runs", "rows", "summary"}
    expected = [
        (heads.tokens, heads.causal, phase) for heads in (TINY, FULL) for phase in ("FP", "step")
    ]
    assert [(row["tokens"], row["causal"], row["phase"]) for row in found["rows"]] == expected
    assert {key for row in found["rows"] for key in row} == keys_of("key of `rows`, attention")
    assert len(found["summary"]) == (2 if with_torch else 0)
    assert {key for row in found["summary"] for key in row} == (
        keys_of("key of `summary`, attention") if with_torch else set()
    )

    assert run_main(*arguments, "--markdown") == 0
    said = capfd.readouterr().out
    assert "| causal | 2 x 5 | 3 x 4 | step |" in said
    words = " ".join(said.split())
    assert (
        "attention, forward and backward: " in words and "below their bars" in words
    ) is with_torch
    assert ("PyTorch was not measured" in words) is not with_torch


@NEEDS_TORCH
def test_wrong_results_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    from emuchain.kernels.attention import Attention

    right = Attention.backward

    def wrong(
        of: Attention,
        x: np.ndarray,
        kept: np.ndarray,
        dy: np.ndarray,
        dx: np.ndarray,
        **masks: object,
    ) -> None:
        right(of, x, kept, dy, dx)
        dx[0, 0, 0] += 1

    monkeypatch.setattr(Attention, "backward", wrong)
    with pytest.raises(
        ArithmeticError,
        match="causal attention of 2 x 5 tokens, 3 heads of 4: differs from PyTorch",
    ):
        next(attention.measure([TINY], Pace(7, 0.0, 0.0), frame.load_torch()))
