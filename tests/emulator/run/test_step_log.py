"""Logs of mini-batches: a CSV file, and events of TensorBoard."""

from __future__ import annotations

import csv
import resource
import sys
from pathlib import Path
from typing import Any

import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.run import StepLog, StepRow, open_log

KEYS = {
    "samples": 24,
    "test_samples": 4,
    "batch": 8,
    "epochs": 2,
    "lr_warm_up": 4,
    "schedule": "sync",
}
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


def records_of(path: Path) -> list[bytes]:
    """The events of a file: each has its length in 8 bytes, 4 of a check sum, itself, and 4 of a
    check sum.
    """
    content, found, place = path.read_bytes(), list[bytes](), 0
    while place < len(content):
        length = int.from_bytes(content[place : place + 8], "little")
        found.append(content[place + 12 : place + 12 + length])
        place += 16 + length
    assert place == len(content)
    return found


def logged(log: StepLog, steps: int) -> None:
    for step in range(steps):
        log.step(StepRow(1, step + 1, 0.5, 0.25, 10**6), step + 1)


def test_tensorboard_has_the_history(tmp_path: Path) -> None:
    events = pytest.importorskip(
        "tensorboardX.proto.event_pb2", reason="the extra `tensorboard` is not installed"
    )
    run = emuchain.train(**KEYS, log=f"tensorboard:{tmp_path / 'runs'}")
    [path] = (tmp_path / "runs").iterdir()
    first, *others = map(events.Event.FromString, records_of(path))
    assert first.file_version == "brain.Event:2"
    found = dict[str, list[tuple[int, float]]]()
    for event in others:
        for value in event.summary.value:
            found.setdefault(value.tag, []).append((event.step, value.simple_value))
    assert [step for step, _ in found["train/loss"]] == [1, 2, 3, 4, 5, 6]
    assert [value for _, value in found["train/loss"]] == pytest.approx(
        run.steps["loss"].tolist(), rel=1e-6
    )
    rates = [value for _, value in found["train/learning_rate"]]
    assert rates == pytest.approx(run.steps["learning_rate"].tolist(), rel=1e-6)
    times = [value for _, value in found["time/virtual_s"]]
    assert times == pytest.approx((run.steps["virtual_time_ps"] * 1e-12).tolist(), rel=1e-6)
    assert [step for step, _ in found["test/accuracy"]] == [3, 6]


def test_check_sums_are_those_of_the_form(tmp_path: Path) -> None:
    """Of an event of no bytes, worked out by the definition of CRC-32C, bit by bit, and
    TensorFlow's mask.
    """
    pytest.importorskip("tensorboardX", reason="the extra `tensorboard` is not installed")

    def masked(content: bytes) -> bytes:
        crc = 0xFFFFFFFF
        for byte in content:
            crc ^= byte
            for _ in range(8):
                crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        crc ^= 0xFFFFFFFF
        return ((crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF).to_bytes(4, "little")

    with open_log(f"tensorboard:{tmp_path}") as log:
        logged(log, 2)
    [path] = tmp_path.iterdir()
    parts = [(len(event).to_bytes(8, "little"), event) for event in records_of(path)]
    assert path.read_bytes() == b"".join(
        length + masked(length) + event + masked(event) for length, event in parts
    )


def test_two_logs_begun_at_once_are_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboardX", reason="the extra `tensorboard` is not installed")
    monkeypatch.setattr("time.time", lambda: 1_700_000_000.0)
    with open_log(f"tensorboard:{tmp_path}") as one, open_log(f"tensorboard:{tmp_path}") as other:
        logged(one, 3)
        logged(other, 5)
    assert sorted(len(records_of(path)) for path in tmp_path.iterdir()) == [4, 6]
    assert all(
        path.name.startswith("events.out.tfevents.1700000000.") for path in tmp_path.iterdir()
    )


@pytest.mark.parametrize("log", ["csv:log.csv", "tensorboard:runs"])
def test_a_full_disk_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_line: Any, log: str
) -> None:
    """A limit on sizes of files stands for it; what was logged before stays, in whole events of
    TensorBoard.
    """
    pytest.importorskip("tensorboardX", reason="the extra `tensorboard` is not installed")
    monkeypatch.chdir(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with open_log(log) as opened:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
        try:
            with pytest.raises(InputError) as error:
                logged(opened, 1000)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert one_line(error).startswith(
        f"`log` = '{log}': cannot be written: File too large; give another "
    )
    if log.startswith("csv"):
        assert (tmp_path / "log.csv").stat().st_size == 2000
    else:
        [path] = (tmp_path / "runs").iterdir()
        assert len(records_of(path)) > 5 and path.stat().st_size <= 2000


def test_a_second_csv_log_is_refused_at_its_start(tmp_path: Path, one_line: Any) -> None:
    path = tmp_path / "log.csv"
    with open_log(f"csv:{path}") as log:
        logged(log, 2)
        before = path.read_bytes()
        with pytest.raises(InputError) as error:
            open_log(f"csv:{path}")
        logged(log, 1)
    assert "this run writes another file there" in one_line(error)
    assert path.read_bytes() == before + before.splitlines(keepends=True)[1]
    assert [*tmp_path.iterdir()] == [path]


def test_a_log_takes_the_place_of_one_and_leaves_its_other_links(tmp_path: Path) -> None:
    path, kept = tmp_path / "log.csv", tmp_path / "kept.csv"
    path.write_text("of last week")
    kept.hardlink_to(path)
    with open_log(f"csv:{path}") as log:
        logged(log, 1)
    assert kept.read_text() == "of last week"
    assert len(rows_of(path)) == 1
