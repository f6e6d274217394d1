"""What a script is told during training, and where it ends training: `on_step`, `on_epoch`,
`patience`, and learning rates of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.kernels import extensions

KEYS: dict[str, Any] = {"samples": 24, "test_samples": 8, "batch": 8, "schedule": "sync"}
RUNS: dict[str, dict[str, Any]] = {
    "chain": {"devices": 2},
    "replicas": {"replicas": 2, "devices": 2},
    "GPU": {"network": "lstm-rows", "schedule": "gpu-standard", "cluster": "farnn-9p"},
}


@pytest.mark.parametrize("run", RUNS)
def test_what_is_told_is_the_history(run: str) -> None:
    """Every whole mini-batch once, and every epoch, numbered and timed as results have them."""
    steps, epochs = list[tuple[int, float, int]](), list[emuchain.EpochResult]()
    made = emuchain.train(
        **{**KEYS, **RUNS[run]},
        epochs=2,
        on_step=lambda *told: steps.append(told),
        on_epoch=lambda result, _: epochs.append(result),
    )
    table = made.steps
    assert [number for number, _, _ in steps] == [*range(1, 7)]
    assert [loss for _, loss, _ in steps] == table["loss"].tolist()
    assert [time_ps for _, _, time_ps in steps] == table["virtual_time_ps"].tolist()
    for name in emuchain.EpochResult._fields:
        assert [getattr(row, name) for row in epochs] == made.history[name].tolist(), name


def test_steps_of_a_run_that_goes_on_are_told_once(tmp_path: Path) -> None:
    numbers, file = list[int](), tmp_path / "run.ckpt"
    note = lambda number, *_: numbers.append(number)  # noqa: E731 - the same for both runs
    emuchain.train(**KEYS, checkpoint=file, on_step=note)
    emuchain.train(resume=file, epochs=3, on_step=note)
    assert numbers == [*range(1, 10)]


@pytest.mark.parametrize("answer", [True, np.True_])
def test_on_epoch_ends_training(tmp_path: Path, answer: object) -> None:
    """The results are those of a run of so many epochs; it goes on from its checkpoint."""
    file = tmp_path / "run.ckpt"
    ended = emuchain.train(
        **KEYS,
        epochs=5,
        checkpoint=file,
        checkpoint_every=1000,
        on_epoch=lambda result, _: answer if result.epoch == 2 else 0,
    )
    short = emuchain.train(**KEYS, epochs=2)
    assert ended.epochs == 2
    assert ended.bits == short.bits
    assert ended.virtual_time_ps == short.virtual_time_ps
    assert emuchain.train(resume=file).bits == emuchain.train(**KEYS, epochs=5).bits


@pytest.mark.parametrize("patience", [1, 2, 3])
def test_patience(tmp_path: Path, patience: int) -> None:
    """It ends after as many epochs without a lower test loss, and is over for whoever resumes."""
    keys = {**KEYS, "learning_rate": 0.02, "epochs": 12}
    losses = emuchain.train(**keys).history["test_loss"]
    best = [int(losses[: epoch + 1].argmin()) for epoch in range(len(losses))]
    [end, *_] = [epoch for epoch, least in enumerate(best) if epoch - least == patience]
    file = tmp_path / "run.ckpt"
    made = emuchain.train(**keys, patience=patience, checkpoint=file)
    assert made.history["test_loss"].tolist() == losses[: end + 1].tolist()
    assert emuchain.train(resume=file).bits == made.bits


def test_patience_without_a_test() -> None:
    data = emuchain.load_data("shapes")
    untested = dataclasses.replace(
        data, test_images=data.test_images[:0], test_labels=data.test_labels[:0]
    )
    with pytest.raises(InputError, match="`patience` = 1: shapes has no test samples"):
        emuchain.train(samples=24, patience=1, data=untested)


@dataclasses.dataclass(frozen=True)
class Table(emuchain.RateSchedule):
    """Rates by epoch, as a script may want them."""

    at: str = "1"

    name: ClassVar[str] = "table"

    def relative(self, epoch: int, after: int, most: int) -> float:
        """See `RateSchedule`."""
        return float(self.at.split("/")[epoch])


@pytest.fixture
def table() -> Iterator[None]:
    emuchain.register(Table)
    try:
        yield
    finally:
        extensions.withdraw(Table)


@pytest.mark.usefixtures("table")
def test_an_own_learning_rate() -> None:
    own = emuchain.train(**KEYS, epochs=2, lr_schedule="table:at=1/0.25")
    assert own.bits == emuchain.train(**KEYS, epochs=2, lr_schedule="steps:at=1,factor=0.25").bits
    assert own.config["lr_schedule"] == "table:at=1/0.25"


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("rate", ["nan", "-1", "inf", "1e41"])
def test_an_own_learning_rate_that_is_none(rate: str) -> None:
    with pytest.raises(InputError, match=r"`lr_schedule` = 'table:at=1/.*mini-batch 4 a rate of"):
        emuchain.train(**KEYS, epochs=2, lr_schedule=f"table:at=1/{rate}")
