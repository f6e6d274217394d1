"""The values of a configuration, for ranks that do not read it themselves (`config.py` does)."""

from __future__ import annotations

import types
from typing import Any


class Settings(types.SimpleNamespace):
    """The configuration's keys as attributes."""

    def rate_in(self: Any, epoch: int) -> float:
        """Return the learning rate of an epoch, counted from 0."""
        return self.learning_rate * self.learning_rate_factor ** sum(epoch >= step for step in self.learning_rate_steps)
