"""`emuchain show --json` and `--csv`: what `emuchain.results` has, under the same names."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.run import Results

from .running import status_of

SHORT = {"samples": 64, "test_samples": 20, "batch": 32}


@pytest.fixture(scope="module")
def run_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of two epochs on two replicas of two devices."""
    file = tmp_path_factory.mktemp("run") / "run.h5"
    keys: dict[str, Any] = {
        "devices": 2,
        "replicas": 2,
        "compress": "inceptionn:-10",
        "epochs": 2,
        **SHORT,
    }
    emuchain.train("quick-cifar", out=str(file), **keys)
    return file


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert status_of("show", *words) == 0
    return capsys.readouterr().out


def test_json_has_the_names_of_python(run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = json.loads(printed(capsys, str(run_file), "--json"))
    results = emuchain.results(run_file)
    assert said == results.to_dict()
    for name, value in said.items():
        own = getattr(results, name)
        if name in ("history", "devices", "links", "exchange", "steps"):
            assert value.keys() == own.keys()
            for column, values in value.items():
                np.testing.assert_array_equal(np.array(values, own[column].dtype), own[column])
        elif name in (
            "epochs",
            "virtual_time_ps",
            "test_accuracy",
            "images_per_s",
            "sample_noun",
            "versions",
        ):
            assert value == own, name
    assert set(said) >= {
        "config",
        "history",
        "usage",
        "exchange",
        "versions",
        "weights",
        "descriptions",
        "rounding",
    }
    assert said["config"]["compress"] == results.config["compress"] == "inceptionn:-10"
    assert said["config"]["lr_schedule"] == "constant"
    assert said["bits"] is None
    assert said["weights"]["conv1"]["weight"] == [32, 3, 3, 3]
    assert results.usage is not None
    device, link = said["usage"]["devices"][1], said["usage"]["links"][0]
    assert device["busy"] == results.usage.devices[1].busy
    assert device["memory"]["board"] == results.usage.devices[1].memory.board
    assert link["path_bytes"] == {
        str(p.value): size for p, size in results.usage.links[0].path_bytes.items()
    }


def test_what_json_has_no_number_for(trained: Results) -> None:
    history = {**trained.history, "test_accuracy": np.array([np.nan])}
    said = dataclasses.replace(trained, history=history).to_dict()
    assert said["history"]["test_accuracy"] == [None]
    assert said["test_accuracy"] is None
    assert json.loads(json.dumps(said, allow_nan=False)) == said


@pytest.fixture(scope="module")
def trained() -> Results:
    """Results in memory, with formats of numbers."""
    keys: dict[str, Any] = {"precision": {"weights": "bf16"}, "schedule": "1f1b-sno", **SHORT}
    return emuchain.train("quick-cifar", devices=2, **keys)


def test_csv_has_a_line_for_each_epoch(run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = list(csv.DictReader(io.StringIO(printed(capsys, str(run_file), "--csv"))))
    history = emuchain.results(run_file).history
    assert list(rows[0]) == list(history)
    for name, column in history.items():
        assert [float(row[name]) for row in rows] == column.tolist(), name
    assert rows[1]["virtual_time_ps"] == str(history["virtual_time_ps"][1])


def test_one_of_them(run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("show", str(run_file), "--json", "--csv") == 2
    assert "--json and --csv: give one of them" in capsys.readouterr().err
