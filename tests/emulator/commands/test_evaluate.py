"""`emuchain evaluate`: the test of weights in a file has the numbers of the run's last epoch."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import emuchain

from .running import status_of

SETTINGS: dict[str, Any] = {"samples": 40, "test_samples": 24, "batch": 20}
NORMALISED: dict[str, Any] = {
    "name": "normalised",
    "input": [3, 32, 32],
    "layers": [
        {"type": "conv", "channels": 8, "kernel": 5, "stride": 2, "pad": 2},
        {"type": "batch-norm"},
        {"type": "relu"},
        {"type": "average-pool", "kernel": 4},
        {"type": "fc", "features": 10},
        {"type": "softmax"},
    ],
}
RUNS: dict[str, dict[str, Any]] = {
    "a chain": {"devices": 3, "epochs": 2},
    "replicas": {"network": NORMALISED, "devices": 2, "replicas": 2, "micro_batch": 5},
    "a text": {"network": "char-lstm", "time_steps": 12, "samples": 40, "devices": 2},
    "a pair": {"network": "lstm-rows", "schedule": "farnn", "cluster": "farnn-9p", "devices": 2},
}


run = functools.partial(status_of, "evaluate")


def evaluated(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """What the command prints as JSON."""
    capsys.readouterr()
    assert run(*words, "--json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("case", RUNS)
def test_numbers_of_the_last_epoch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    files = str(tmp_path / "run.h5"), str(tmp_path / "run.ckpt")
    trained = emuchain.train(**{**SETTINGS, **RUNS[case]}, out=files[0], checkpoint=files[1])
    last = trained.history
    for file in files:
        found = evaluated(capsys, file)
        assert found["test_loss"] == pytest.approx(last["test_loss"][-1], rel=1e-12)
        assert found["test_accuracy"] == last["test_accuracy"][-1]
        assert found["epochs"] == trained.epochs
        assert found["network"] == trained.config["network"]
        if trained.bits is not None:
            assert found["test_bits"] == pytest.approx(trained.bits[0], rel=1e-12)


def test_the_answer_and_other_data(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    small_cifar: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    file = "run.h5"
    trained = emuchain.train(**SETTINGS, data=str(small_cifar), out=file)
    capsys.readouterr()
    assert run(file) == 0
    accuracy, loss = trained.test_accuracy, trained.history["test_loss"][-1]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"test accuracy {100 * accuracy:.2f} %, test loss {loss:.4f}"
    assert lines[1] == f"weights: {file}, quick-cifar after 1 epoch"
    assert lines[2].startswith("data: ") and lines[2].endswith(", 24 test images")
    all_of_it = evaluated(capsys, file, "--test-samples", "40")
    assert all_of_it["test_samples"] == 40 and all_of_it["test_loss"] != pytest.approx(loss)
    assert evaluated(capsys, file, "--data", "shapes")["data"] == "shapes"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["none.h5"], "no such file"),
        (["run.h5", "--data", "text"], "`data` = 'text'"),
        (
            ["run.h5", "--test-samples", "2001"],
            "`test_samples` = 2001: but shapes has 2000 test images; give a number",
        ),
        (["run.h5", "--data", "nowhere"], "`data` = 'nowhere'"),
        (["page.html"], "neither a results file (.h5) nor a checkpoint"),
    ],
)
def test_one_line_of_what_is_wrong(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    one_line: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    emuchain.train(**SETTINGS, out="run.h5")
    (tmp_path / "page.html").write_text("<html>")
    capsys.readouterr()
    assert run(*words) == 2
    assert message in one_line(capsys.readouterr().err)
