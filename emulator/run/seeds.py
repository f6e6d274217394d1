"""The same run with several seeds: the means of what they reach, with standard errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from ..common import Mean
from .results import Results


@dataclasses.dataclass(frozen=True)
class SeedRuns:
    """The results of runs that differ only in their seeds, in the order of these."""

    results: tuple[Results, ...]

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds."""
        return tuple(int(run.config["seed"]) for run in self.results)

    @property
    def test_accuracy(self) -> Mean | None:
        """The mean test accuracy after the last epoch, as a share; None without a test."""
        accuracies = [run.test_accuracy for run in self.results]
        known = [accuracy for accuracy in accuracies if accuracy is not None]
        return Mean.over(known) if len(known) == len(accuracies) else None

    @property
    def train_loss(self) -> Mean:
        """The mean loss in the last epoch."""
        return self.curve("train_loss")[-1]

    def curve(self, column: str) -> list[Mean]:
        """Return the means of a column of the history, such as "test_accuracy", by epoch."""
        return [Mean.over(list(map(float, values))) for values in zip(*self._columns(column), strict=True)]

    def _columns(self, column: str) -> Sequence[Any]:
        return [run.history[column] for run in self.results]

    def __repr__(self) -> str:
        accuracy = self.test_accuracy
        told = "" if accuracy is None else f", test accuracy {accuracy.times(100).shown(2)} %"
        return f"<Runs of seeds {', '.join(map(str, self.seeds))}{told}, train loss {self.train_loss.shown(4)}>"
