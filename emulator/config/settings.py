"""The values of a configuration, for ranks that do not read it themselves (`config.py` does)."""

from __future__ import annotations

import types
from typing import Any


class Settings(types.SimpleNamespace):
    """The configuration's keys as attributes."""

    def rate_in(self: Any, epoch: int) -> float:
        """Return the learning rate of an epoch, counted from 0."""
        return self.learning_rate * self.learning_rate_factor ** sum(epoch >= step for step in self.learning_rate_steps)


def log_place(said: str) -> tuple[str, str]:
    """Return what the key `log` says: `csv` with a file, or `tensorboard` with a folder."""
    kind, _, where = said.partition(":")
    return kind, where or ("log.csv" if kind == "csv" else "runs")
