"""The history of a run: what a list of epochs does, in spools."""

import dataclasses
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.comm.exchange import Traffic
from emuchain.emulator.device import Tally
from emuchain.emulator.run import EpochResult
from emuchain.emulator.run.history import History, accuracy, bits_per_step, mean_loss
from emuchain.emulator.run.sizes import SentBy
from emuchain.emulator.run.steps import NOTHING, Exchanged, StepTable
from emuchain.emulator.run.usage import Usage

COUNTS = st.integers(0, 1 << 40)
LOSSES = st.floats(0, 1e9)
TALLIES = st.builds(Tally, COUNTS, LOSSES, COUNTS, COUNTS, LOSSES)


def epoch(number: int, train: Tally, steps: int = 3) -> EpochResult:
    """An epoch with some mini-batches."""
    values = np.arange(steps) + 10.0 * number
    table = StepTable(values, values / 7, (1000 * values).astype(np.int64))
    usage = Usage(number, (), ())
    return EpochResult(number, 0.1 * number, train, Tally(), 5 * number, 0.3 * number, usage, steps=table)


def rows(epochs: Iterable[EpochResult]) -> list[EpochResult]:
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
    train = History(epoch(number, tally) for number, tally in enumerate(tallies)).rows.read()["train"]
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
    np.testing.assert_array_equal(np.concatenate([piece.rows for piece in pieces]), history.rows.read())
    np.testing.assert_array_equal(np.concatenate([piece.steps for piece in pieces]), history.steps.read())
    assert [count for piece in pieces for count in piece.counts] == [100 * steps for steps, _ in given]
    assert [each.traffic for piece in pieces for each in piece.exchanged] == [each.exchanged.traffic for each in epochs]
    for found, expected in zip((of for piece in pieces for of in piece.sizes), epochs, strict=True):
        np.testing.assert_array_equal(found[SentBy(0, 1)], expected.sizes[SentBy(0, 1)])
    assert history.statistics == ({"width_2": None} if any(value_bytes for _, value_bytes in given) else None)


def exchanged(value_bytes: int) -> Exchanged:
    """What an epoch has exchanged; nothing, with no bytes."""
    return Exchanged(Traffic(value_bytes, value_bytes // 2, {"width_2": value_bytes})) if value_bytes else NOTHING
