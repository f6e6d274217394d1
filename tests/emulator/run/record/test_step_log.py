"""Logs of mini-batches: a CSV file, and events of TensorBoard."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.run import open_log

KEYS = {"samples": 24, "test_samples": 4, "batch": 8, "epochs": 2, "lr_warm_up": 4, "schedule": "sync"}
RUNS: dict[str, dict[str, Any]] = {
    "chain": {},
    "replicas": {"replicas": 2, "devices": 2},
    "GPU": {"network": "lstm-rows", "schedule": "gpu-standard", "cluster": "farnn-9p"},
}


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("run", RUNS)
def test_csv_has_the_history(tmp_path: Path, run: str) -> None:
    path = tmp_path / "some.csv"
    found = emuchain.train(**{**KEYS, **RUNS[run]}, log=f"csv:{path}")
    rows = rows_of(path)
    assert [*rows[0]] == ["epoch", "step", "loss", "learning_rate", "virtual_time_ps"]
    assert len(rows) == 6
    assert [*found.steps] == [*rows[0]]
    for name, column in found.steps.items():
        assert [float(row[name]) for row in rows] == column.tolist()


def test_csv_is_written_as_mini_batches_end(tmp_path: Path) -> None:
    path, seen = tmp_path / "some.csv", list[int]()
    emuchain.train(**KEYS, log=f"csv:{path}", on_epoch=lambda *_: seen.append(len(rows_of(path))))
    assert seen == [3, 6]


def test_default_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    open_log("csv").close()
    assert (tmp_path / "log.csv").read_text() == "epoch,step,loss,learning_rate,virtual_time_ps\n"
    open_log(None).close()
    assert [*tmp_path.iterdir()] == [tmp_path / "log.csv"]
    pytest.importorskip("tensorboardX", reason="the extra `tensorboard` is not installed")
    open_log("tensorboard").close()
    assert [*(tmp_path / "runs").iterdir()]


@pytest.mark.parametrize("where", ["csv:", "csv:none/log.csv", "tensorboard:file/runs"])
def test_what_cannot_be_written_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_line: Any, where: str
) -> None:
    if where.startswith("tensorboard"):
        pytest.importorskip("tensorboardX", reason="the extra `tensorboard` is not installed")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "log.csv").mkdir()
    with pytest.raises(InputError) as error:
        open_log(where)
    assert one_line(error).startswith("`log` = ")


def test_without_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(InputError, match=r"pip install 'emuchain\[tensorboard\]'"):
        open_log("tensorboard")


def test_tensorboard_has_the_history(tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboardX.proto.event_pb2", reason="the extra `tensorboard` is not installed")
    run = emuchain.train(**KEYS, log=f"tensorboard:{tmp_path / 'runs'}")
    [path] = (tmp_path / "runs").iterdir()
    content, found, place = path.read_bytes(), dict[str, list[tuple[int, float]]](), 0
    while place < len(content):  # a record: its length in 8 bytes, 4 of a check sum, the event, 4 of a check sum
        length = int.from_bytes(content[place : place + 8], "little")
        event = events.Event.FromString(content[place + 12 : place + 12 + length])
        for value in event.summary.value:
            found.setdefault(value.tag, []).append((event.step, value.simple_value))
        place += 16 + length
    assert [step for step, _ in found["train/loss"]] == [1, 2, 3, 4, 5, 6]
    assert [value for _, value in found["train/loss"]] == pytest.approx(run.steps["loss"].tolist(), rel=1e-6)
    rates = [value for _, value in found["train/learning_rate"]]
    assert rates == pytest.approx(run.steps["learning_rate"].tolist(), rel=1e-6)
    times = [value for _, value in found["time/virtual_s"]]
    assert times == pytest.approx((run.steps["virtual_time_ps"] * 1e-12).tolist(), rel=1e-6)
    assert [step for step, _ in found["test/accuracy"]] == [3, 6]
