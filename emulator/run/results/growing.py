"""Tables of a run that grow with it, in pieces: a row for each epoch, or for each mini-batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....comm.exchange import step_sizes
from ....kernels.inceptionn import WIDTHS
from ...data import NgramBits
from ...plan import Plan
from ..record import EpochResult, History, Piece, accuracy, bits_per_step, compressed_bytes, mean_loss

GROWING = ("history", "exchange", "messages", "steps")
"""Groups of a results file with such tables."""

Table = dict[str, np.ndarray]
"""Columns by name."""


@dataclasses.dataclass(frozen=True)
class Growing:
    """Columns by group that have a row for each epoch or mini-batch of a history, in pieces; `rows` in all."""

    rows: Mapping[str, int]
    pieces: Iterable[Mapping[str, Table]]

    def joined(self) -> dict[str, Table]:
        """Return all of them as tables."""
        found: dict[str, dict[str, list[np.ndarray]]] = {}
        for piece in self.pieces:
            for group, table in piece.items():
                for name, column in table.items():
                    found.setdefault(group, {}).setdefault(name, []).append(column)
        return {group: {name: np.concatenate(parts) for name, parts in table.items()} for group, table in found.items()}


def growing_of(plan: Plan, samples: int, history: History, ngrams: NgramBits | None = None) -> Growing:
    """Return the columns of `results_of` that grow with the history."""
    steps = epoch_steps(plan, samples)
    pieces = (
        {
            "history": history_rows(piece.rows, ngrams),
            "exchange": exchange_rows(piece, history.statistics, plan.nodes),
            "messages": {"compressed_bytes": compressed_bytes(piece.sizes, steps)} if piece.sizes[0] else {},
            "steps": step_rows(piece),
        }
        for piece in history.pieces()
    )
    epochs, mini_batches = len(history), len(history.steps)
    return Growing(dict(zip(GROWING, (epochs, epochs, mini_batches, mini_batches), strict=True)), pieces)


def epoch_steps(plan: Plan, samples: int) -> int:
    """Return the mini-batches of an epoch."""
    return len(step_sizes(samples, plan.config.batch))


def history_table(history: Sequence[EpochResult], ngrams: NgramBits | None = None) -> Table:
    """Return the history's columns; of a text's network bits per character, too, with those of the simplest models."""
    return history_rows(History.of(history).rows.read(), ngrams)


def history_rows(rows: NDArray[Any], ngrams: NgramBits | None) -> Table:
    """Return the columns of some of a history's rows; see `history_table`."""
    table = {
        "epoch": rows["epoch"] + 1,
        "learning_rate": rows["learning_rate"].copy(),
        "train_loss": mean_loss(rows["train"]),
        "train_accuracy": accuracy(rows["train"]),
        "test_loss": mean_loss(rows["test"]),
        "test_accuracy": accuracy(rows["test"]),
        "virtual_time_ps": rows["virtual_time_ps"].copy(),
        "host_time_s": rows["host_time_s"].copy(),
    }
    if ngrams is not None:
        table["test_bits"] = bits_per_step(rows["test"])
        table["unigram_bits"] = np.full(len(rows), ngrams.unigram)
        table["bigram_bits"] = np.full(len(rows), ngrams.bigram)
    return table


def step_rows(piece: Piece) -> Table:
    """Return the columns of the mini-batches of some epochs."""
    rows, counts = piece.rows, piece.counts
    begins = np.repeat(np.cumsum(counts) - counts, counts)
    return {
        "epoch": np.repeat(rows["epoch"] + 1, counts),
        "step": np.arange(1, len(piece.steps) + 1) - begins,
        **{name: piece.steps[name].copy() for name in ("loss", "learning_rate", "virtual_time_ps")},
    }


def exchange_table(history: Sequence[EpochResult], nodes: int) -> Table:
    """Return the exchange's columns, for `nodes` devices; {} where nothing was exchanged.

    Besides INCEPTIONN's widths, there is a column for each other statistic of the codec.
    """
    kept = History.of(history)
    pieces = ({"exchange": exchange_rows(piece, kept.statistics, nodes)} for piece in kept.pieces())
    return Growing({}, pieces).joined().get("exchange", {})


def exchange_rows(piece: Piece, statistics: Iterable[str] | None, nodes: int) -> Table:
    """Return the columns of some epochs; see `exchange_table`. `statistics` are None where nothing was exchanged."""
    rows = piece.exchanged
    if statistics is None:
        return {}
    table = {
        "epoch": piece.rows["epoch"] + 1,
        "value_bytes": np.array([row.traffic.value_bytes for row in rows], np.int64),
        "compressed_bytes": np.array([row.traffic.compressed_bytes for row in rows], np.int64),
    }
    for name in dict.fromkeys([*(f"width_{bits}" for bits in WIDTHS), *statistics]):
        table[name] = np.array([row.traffic.statistics.get(name, 0) for row in rows], np.int64)
    table["device_ps"] = np.array([row.spent_ps // nodes for row in rows], np.int64)
    table["histogram"] = np.array([row.histogram for row in rows], np.int64)
    return table
