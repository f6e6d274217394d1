"""Losses and hits over samples."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Tally:
    """Sum of losses, and number of correct predictions, over `samples` samples."""

    samples: int = 0
    loss: float = 0.0
    correct: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.samples + other.samples, self.loss + other.loss, self.correct + other.correct)

    @property
    def mean_loss(self) -> float:
        """Mean cross-entropy."""
        return self.loss / self.samples if self.samples else float("nan")

    @property
    def accuracy(self) -> float:
        """Share of samples that were classified correctly."""
        return self.correct / self.samples if self.samples else float("nan")
