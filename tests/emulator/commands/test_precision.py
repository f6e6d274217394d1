"""`emuchain precision`: each format is trained, the answer comes first, and what is wrong is
reported before any run.
"""

from __future__ import annotations

import json
import shlex
import signal
from pathlib import Path
from typing import Any

import pytest

from emuchain.emulator.commands.cli import main
from emuchain.emulator.run import RunCheckpoints
from emuchain.launch import SingleProcess

KEYS = ["quick-cifar", "--devices", "2", "--samples", "64", "--test-samples", "20", "--batch", "16"]
KEYS += ["--schedule", "sync", "--progress", "none"]


def test_outcomes_are_those_of_training(printed: Any, tmp_path: Path) -> None:
    picture, out = tmp_path / "formats.png", tmp_path / "run.h5"
    said = json.loads(
        printed("precision", *KEYS, "--formats", "fp32,mxfp8", "--json", "--plot", str(picture))
    )
    single, narrow = said["formats"]
    assert [single["precision"], narrow["precision"]] == ["fp32", "mxfp8"]
    assert narrow["link_bytes"] < single["link_bytes"] and narrow["times_ps"] != single["times_ps"]
    assert picture.stat().st_size > 1000
    trained = printed("train", *KEYS, "--precision", "mxfp8", "--out", str(out))
    assert f"test accuracy {100 * narrow['accuracy']:.2f} %" in trained
    simulated = json.loads(
        printed("simulate", *KEYS[:5], *KEYS[7:11], "--precision", "mxfp8", "--json")
    )
    assert simulated["virtual_time_ps"] == narrow["times_ps"][-1]


def test_the_answer_comes_first(printed: Any) -> None:
    first, second, *_ = printed(
        "precision", *KEYS, "--formats", "fp32,q8.8", "--precision.master", "bf16"
    ).splitlines()
    assert "fp32" in first and "%" in first
    assert second.endswith("of the memory") or "no other format" in first


def test_a_run_that_diverges_is_an_outcome(printed: Any) -> None:
    text = printed(
        "precision",
        *KEYS,
        "--formats",
        "fp32,fp16",
        "--precision.loss-scale",
        "16777216",
        "--epochs",
        "2",
    )
    assert "fp16 loss_scale=16777216: " in text and "diverged" in text


SEVERAL = [
    *KEYS,
    "--epochs",
    "2",
    "--checkpoint-every",
    "2",
    "--precision.loss-scale",
    "64",
    "--json",
]
FORMATS = ["--formats", "q2.6,fp32"]
REACHED = 8
"""Checkpoints of both runs together."""


@pytest.fixture(scope="module")
def unbroken() -> dict[str, str]:
    """What runs print that nothing has ended, once they have."""
    return {}


@pytest.fixture
def whole(printed: Any, unbroken: dict[str, str]) -> str:
    if not unbroken:
        unbroken["both"] = printed("precision", *SEVERAL, *FORMATS)
    return unbroken["both"]


@pytest.mark.parametrize("done", range(1, REACHED))
def test_killed_runs_go_on_wherever_they_were(
    printed: Any, whole: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: int
) -> None:
    """From format, epoch and step; none makes a checkpoint twice, and all keep theirs under their
    names.
    """
    reach, reached = RunCheckpoints.reach, list[object]()

    def reach_or_end(self: RunCheckpoints, *where: Any) -> bool:
        ends = reach(self, *where)
        reached.append(where)
        if len(reached) == done:
            raise KeyboardInterrupt
        return ends

    monkeypatch.setattr(RunCheckpoints, "reach", reach_or_end)
    file = str(tmp_path / "run")
    with pytest.raises(SystemExit) as ended:
        main(["precision", *SEVERAL, *FORMATS, "--checkpoint", file])
    assert (ended.value.code, len(reached)) == (130, done)
    assert (
        printed("precision", *FORMATS, *SEVERAL[-3:], "--progress", "none", "--resume", file)
        == whole
    )
    assert len(reached) == REACHED
    names = {path.name for path in tmp_path.iterdir() if not path.name.startswith(".")}
    assert names == {"run-q2.6-loss_scale=64", "run-fp32-loss_scale=64"}


def test_a_stopped_run_says_how_to_go_on(
    printed: Any,
    whole: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file, signals = tmp_path / "run.ckpt", [0, 0, 0, 0, 0, signal.SIGTERM]
    monkeypatch.setattr(SingleProcess, "end_wanted", lambda _: signals.pop(0) if signals else 0)
    with pytest.raises(SystemExit) as ended:
        main(["precision", *SEVERAL, *FORMATS, "--checkpoint", str(file)])
    said = " ".join(capsys.readouterr().out.split())
    assert ended.value.code == 128 + signal.SIGTERM
    assert "stopped by SIGTERM: epoch 1 of 2" not in said and "1 of 2 epochs done" in said
    words = shlex.split(said.partition("next: emuchain ")[2])
    assert printed(*words, "--json", "--progress", "none") == whole


def test_runs_that_diverge_do_so_again(printed: Any, tmp_path: Path) -> None:
    keys = [*KEYS, "--precision.loss-scale", "16777216", "--formats", "fp32,fp16,bf16", "--json"]
    file = str(tmp_path / "run.ckpt")
    expected = printed("precision", *keys, "--checkpoint", file)
    assert json.loads(expected)["formats"][1]["failure"]
    assert printed("precision", *keys, "--resume", file) == expected


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--resume", "none.ckpt"], "`resume` = 'none-fp32.ckpt': no such file"),
        (["--checkpoint", "run.png", "--plot", "run-bf16.png"], "`plot` = 'run-bf16.png'"),
        (["--log", "csv:x.csv"], "`log`: names one file"),
        (
            ["--formats", "fp32,mxfp9"],
            "`formats` = 'fp32,mxfp9': did you mean `mxfp8`? known: fp32",
        ),
        (["--precision", "bf16"], "give all formats as `--formats`"),
        (["--out", "x.h5"], "`out`: names one file"),
        (
            ["--network", "char-lstm", "--formats", "bf16", "--precision.accumulate", "dot:32"],
            "takes 527 bits, for which there is no adder of 53",
        ),
    ],
)
def test_what_is_refused(one_line: Any, capsys: Any, arguments: list[str], said: str) -> None:
    keys = KEYS[1:] if "--network" in arguments else KEYS
    with pytest.raises(SystemExit) as ended:
        main(["precision", *keys, *arguments])
    out, error = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert said in one_line(error)


def test_commas_between_keys_of_a_loss_scale_divide_nothing(printed: Any) -> None:
    formats = "bf16 loss_scale=dynamic:every=2,first=1024,fp32, master=bf16"
    said = json.loads(printed("precision", *KEYS, "--formats", formats, "--json"))
    named = [one["precision"] for one in said["formats"]]
    assert named == ["bf16 loss_scale=dynamic:every=2,first=1024", "fp32", "fp32 master=bf16"]
