"""`emuchain precision`: each format is trained, the answer comes first, and what is wrong is told before any run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from emuchain.emulator.commands.cli import main

KEYS = ["quick-cifar", "--devices", "2", "--samples", "64", "--test-samples", "20", "--batch", "16"]
KEYS += ["--schedule", "sync", "--progress", "none"]


def test_outcomes_are_those_of_training(printed: Any, tmp_path: Path) -> None:
    picture, out = tmp_path / "formats.png", tmp_path / "run.h5"
    said = json.loads(printed("precision", *KEYS, "--formats", "fp32,mxfp8", "--json", "--plot", str(picture)))
    single, narrow = said["formats"]
    assert [single["precision"], narrow["precision"]] == ["fp32", "mxfp8"]
    assert narrow["link_bytes"] < single["link_bytes"] and narrow["times_ps"] != single["times_ps"]
    assert picture.stat().st_size > 1000
    trained = printed("train", *KEYS, "--precision", "mxfp8", "--out", str(out))
    assert f"test accuracy {100 * narrow['accuracy']:.2f} %" in trained
    simulated = json.loads(printed("simulate", *KEYS[:5], *KEYS[7:11], "--precision", "mxfp8", "--json"))
    assert simulated["virtual_time_ps"] == narrow["times_ps"][-1]


def test_the_answer_comes_first(printed: Any) -> None:
    first, second, *_ = printed("precision", *KEYS, "--formats", "fp32,q8.8", "--precision.master", "bf16").splitlines()
    assert "fp32" in first and "%" in first
    assert second.endswith("of the memory") or "no other format" in first


def test_a_run_that_diverges_is_an_outcome(printed: Any) -> None:
    text = printed("precision", *KEYS, "--formats", "fp32,fp16", "--precision.loss-scale", "16777216", "--epochs", "2")
    assert "fp16 loss_scale=16777216: " in text and "diverged" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--formats", "fp32,mxfp9"], "`formats` = 'fp32,mxfp9': did you mean `mxfp8`? known: fp32"),
        (["--precision", "bf16"], "give all formats as `--formats`"),
        (["--out", "x.h5"], "`out`: names one file"),
        (["--network", "char-lstm", "--formats", "fp32,bf16"], "is a recurrent layer"),
    ],
)
def test_what_is_refused(one_line: Any, capsys: Any, arguments: list[str], said: str) -> None:
    keys = KEYS[1:] if "--network" in arguments else KEYS
    with pytest.raises(SystemExit) as ended:
        main(["precision", *keys, *arguments])
    out, error = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert said in one_line(error)
