"""Losses and hits over samples."""

from __future__ import annotations

import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class Tally:
    """Sum of losses, and number of correct predictions, over `samples` samples.

    Where a sample has a prediction for each time step, its loss is the mean over its steps; then `steps` is the number
    of all predictions, and `step_loss` the sum of their losses.
    """

    samples: int = 0
    loss: float = 0.0
    correct: int = 0
    steps: int = 0
    step_loss: float = 0.0

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.samples + other.samples,
            self.loss + other.loss,
            self.correct + other.correct,
            self.steps + other.steps,
            self.step_loss + other.step_loss,
        )

    @property
    def mean_loss(self) -> float:
        """Mean cross-entropy of a sample."""
        return self.loss / self.samples if self.samples else float("nan")

    @property
    def accuracy(self) -> float:
        """Share of predictions that are right: of samples, or of time steps."""
        predictions = self.steps or self.samples
        return self.correct / predictions if predictions else float("nan")

    @property
    def bits_per_step(self) -> float:
        """Mean cross-entropy of a time step in bits; NaN where samples have one prediction each."""
        return self.step_loss / self.steps / math.log(2) if self.steps else float("nan")
