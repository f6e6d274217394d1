"""The history of a run: what is kept of epochs in spools, and how often a file with it is
written.
"""

from __future__ import annotations

import dataclasses
import tempfile
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import emuchain
from emuchain.comm.exchange import Traffic
from emuchain.emulator.common import InputError
from emuchain.emulator.device import Tally
from emuchain.emulator.run import EpochRecord, read_results
from emuchain.emulator.run.results import history as module
from emuchain.emulator.run.results.history import (
    LONG_BYTES,
    History,
    Pace,
    Spool,
    accuracy,
    bits_per_step,
    mean_loss,
)
from emuchain.emulator.run.results.steps import NOTHING, Exchanged, SentBy, StepTable
from emuchain.emulator.run.results.usage import Usage
from emuchain.emulator.run.state.checkpoint_file import CheckpointReader

COUNTS = st.integers(0, 1 << 40)
LOSSES = st.floats(0, 1e9)
TALLIES = st.builds(Tally, COUNTS, LOSSES, COUNTS, COUNTS, LOSSES)


def epoch(number: int, train: Tally, steps: int = 3) -> EpochRecord:
    """An epoch with some mini-batches."""
    values = np.arange(steps) + 10.0 * number
    table = StepTable(values, values / 7, (1000 * values).astype(np.int64))
    usage = Usage(number, (), ())
    return EpochRecord(
        number, 0.1 * number, train, Tally(), 5 * number, 0.3 * number, usage, steps=table
    )


def rows(epochs: Iterable[EpochRecord]) -> list[EpochRecord]:
    """What a history keeps of epochs: of all but the last, no usage."""
    *before, last = epochs
    return [*(each.row() for each in before), last]


@given(st.lists(st.tuples(TALLIES, st.integers(0, 4)), min_size=1, max_size=200), st.data())
def test_epochs_come_back_as_they_were(given: list[tuple[Tally, int]], data: st.DataObject) -> None:
    epochs = [epoch(number, train, steps) for number, (train, steps) in enumerate(given)]
    history = History(epochs)
    assert len(history) == len(epochs)
    assert [*history] == rows(epochs)
    first = data.draw(st.integers(0, len(epochs)))
    history[first:] = [epochs[-1]]
    assert [*history] == rows([*epochs[:first], epochs[-1]])


@given(st.lists(TALLIES, max_size=20))
def test_columns_are_what_tallies_say(tallies: list[Tally]) -> None:
    train = History(epoch(number, tally) for number, tally in enumerate(tallies)).rows.read()[
        "train"
    ]
    np.testing.assert_array_equal(mean_loss(train), [tally.mean_loss for tally in tallies])
    np.testing.assert_array_equal(accuracy(train), [tally.accuracy for tally in tallies])
    np.testing.assert_array_equal(bits_per_step(train), [tally.bits_per_step for tally in tallies])


def test_only_the_end_changes() -> None:
    history = History(epoch(number, Tally()) for number in range(3))
    with pytest.raises(ValueError, match="only the last epochs"):
        del history[0:1]
    with pytest.raises(ValueError, match="at the end"):
        history.insert(0, epoch(3, Tally()))
    assert len(history) == 3


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 2)), min_size=1, max_size=60))
def test_pieces_put_together_are_the_whole(given: list[tuple[int, int]]) -> None:
    """Each has whole epochs, and what these exchanged and sent."""
    epochs = [
        dataclasses.replace(
            epoch(number, Tally(), 100 * steps),
            exchanged=exchanged(value_bytes),
            sizes={SentBy(0, 1): np.full((steps, 2), number)},
        )
        for number, (steps, value_bytes) in enumerate(given)
    ]
    history = History(epochs)
    pieces = [*history.pieces()]
    np.testing.assert_array_equal(
        np.concatenate([piece.rows for piece in pieces]), history.rows.read()
    )
    np.testing.assert_array_equal(
        np.concatenate([piece.steps for piece in pieces]), history.steps.read()
    )
    assert [count for piece in pieces for count in piece.counts] == [
        100 * steps for steps, _ in given
    ]
    assert [each.traffic for piece in pieces for each in piece.exchanged] == [
        each.exchanged.traffic for each in epochs
    ]
    for found, expected in zip((of for piece in pieces for of in piece.sizes), epochs, strict=True):
        np.testing.assert_array_equal(found[SentBy(0, 1)], expected.sizes[SentBy(0, 1)])
    assert history.statistics == (
        {"width_2": None} if any(value_bytes for _, value_bytes in given) else None
    )


def exchanged(value_bytes: int) -> Exchanged:
    """What an epoch has exchanged; nothing, with no bytes."""
    return (
        Exchanged(Traffic(value_bytes, value_bytes // 2, {"width_2": value_bytes}))
        if value_bytes
        else NOTHING
    )


RECORD = np.dtype([("a", np.int64), ("b", [("c", np.float64)])])


def records(count: int, first: int = 0) -> np.ndarray:
    """Records that all differ."""
    made = np.zeros(count, RECORD)
    made["a"] = made["b"]["c"] = np.arange(first, first + count)
    return made


@given(
    st.lists(st.one_of(st.integers(0, 9), st.floats(0, 1)), max_size=30),
    st.integers(1, 200),
    st.data(),
)
def test_records_come_back_as_they_were(
    does: list[int | float], kept_bytes: int, data: st.DataObject
) -> None:
    """A whole number adds as many records, another cuts to this share of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_KEPT_BYTES", kept_bytes)
        patch.setattr(module, "_PIECE_BYTES", kept_bytes)
        spool, expected = Spool(RECORD), records(0)
        for number, what in enumerate(does):
            if isinstance(what, int):
                spool.add(records(what, 100 * number))
                expected = np.concatenate([expected, records(what, 100 * number)])
            else:
                spool.cut(int(what * len(expected)))
                expected = expected[: int(what * len(expected))]
            assert len(spool) == len(expected)
        np.testing.assert_array_equal(spool.read(), expected)
        np.testing.assert_array_equal(np.concatenate([records(0), *spool.pieces()]), expected)
        first = data.draw(st.integers(0, len(expected)))
        last = data.draw(st.integers(0, len(expected)))
        np.testing.assert_array_equal(spool.read(first, last), expected[first:last])


def test_memory_does_not_grow() -> None:
    spool, some = Spool(RECORD), records(1000)
    spool.add(some)
    tracemalloc.start()
    try:
        for _ in range(100):
            for _ in range(100):
                spool.add(some)
            assert tracemalloc.get_traced_memory()[1] < 1 << 17  # at any time
    finally:
        tracemalloc.stop()
    assert spool.nbytes == 10_001 * some.nbytes


def test_no_room_for_temporary_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    spool = Spool(RECORD)
    with pytest.raises(
        InputError, match=r"gone: cannot be written: No such file or directory; .* TMPDIR$"
    ):
        for _ in range(10):
            spool.add(records(1000))


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
    """And their weights, though training has gone on with others; its checkpoint is the last one
    that was due.
    """
    out, checkpoint = tmp_path / "run.h5", tmp_path / "run.ckpt"
    kept: list[Any] = []

    def fail(result: Any, weights: Any) -> None:
        kept.append(bits(weights))
        if result.epoch == 4:
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
