"""How often files are written: always while a history is short, then for a small share of the time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.run import history as module
from emuchain.emulator.run import read_results
from emuchain.emulator.run.checkpoint_file import CheckpointReader
from emuchain.emulator.run.history import LONG_BYTES, Pace

SETTINGS = {"samples": 4, "test_samples": 2, "batch": 2, "epochs": 5}


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        """Return the time in s."""
        return self.now_s


def test_a_short_history_is_always_written() -> None:
    clock = Clock()
    pace = Pace(clock)
    for _ in range(3):
        assert pace.due(LONG_BYTES - 1)
        with pace.writing():
            clock.now_s += 5


@pytest.mark.parametrize("epoch_s", [0.001, 0.3, 2.0, 100.0])
def test_a_long_one_takes_a_twentieth_of_the_time(epoch_s: float) -> None:
    """Where an epoch takes longer than that, each is written."""
    clock, wrote_s, epochs, writes = Clock(), 0.0, 0, 0
    pace = Pace(clock)
    while clock.now_s < 2000:
        clock.now_s += epoch_s
        epochs += 1
        if pace.due(LONG_BYTES):
            writes += 1
            with pace.writing():
                clock.now_s += 0.1
            wrote_s += 0.1
    assert wrote_s / 1000 <= 1 / 20 + 1e-3
    assert writes == epochs if epoch_s >= 1.9 else wrote_s / 1000 > 1 / 30


@pytest.fixture
def only_what_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each history is long, and after the first file no other is due."""
    monkeypatch.setattr(module, "LONG_BYTES", 0)
    monkeypatch.setattr(module, "_APART", 1e12)


@pytest.mark.usefixtures("only_what_is_due")
def test_the_last_epoch_is_always_written(tmp_path: Path, bits: Any) -> None:
    out, checkpoint, seen = tmp_path / "run.h5", tmp_path / "run.ckpt", []

    def see(*_: object) -> None:
        seen.append(read_results(out).epochs)

    found = emuchain.train(**SETTINGS, out=str(out), checkpoint=str(checkpoint), on_epoch=see)
    assert seen == [1, 1, 1, 1, 5]
    written = read_results(out)
    assert written.history["train_loss"].tolist() == found.history["train_loss"].tolist()
    assert bits(written.weights) == bits(found.weights)
    with CheckpointReader(checkpoint) as reader:
        assert reader.text["position"] == [5, 0]


@pytest.mark.usefixtures("only_what_is_due")
def test_a_run_that_fails_leaves_its_epochs(tmp_path: Path, bits: Any) -> None:
    """And their weights, though training has gone on with others; its checkpoint is the last one that was due."""
    out, checkpoint = tmp_path / "run.h5", tmp_path / "run.ckpt"
    kept: list[Any] = []

    def fail(result: Any, weights: Any) -> None:
        kept.append(bits(weights))
        if result.epoch == 3:
            raise KeyError("stop")

    with pytest.raises(KeyError, match="stop"):
        emuchain.train(**SETTINGS, out=str(out), checkpoint=str(checkpoint), on_epoch=fail)
    left = read_results(out)
    assert left.epochs == 4
    assert bits(left.weights) == kept[3]
    found = emuchain.train(resume=str(checkpoint))
    whole = emuchain.train(**SETTINGS)
    assert bits(found.weights) == bits(whole.weights)
    for name, column in whole.history.items():
        if name != "host_time_s":
            np.testing.assert_array_equal(found.history[name], column)
