"""Totals of exchanges of gradients."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from ....comm.exchange import BINS, Traffic


@dataclasses.dataclass(frozen=True)
class Exchanged:
    """Totals of exchanges: traffic, the time that devices spent on them, and the distribution of gradients."""

    traffic: Traffic = dataclasses.field(default_factory=Traffic)
    spent_ps: int = 0
    histogram: NDArray[np.int64] = dataclasses.field(default_factory=lambda: np.zeros((2, BINS), np.int64))

    def __add__(self, other: Exchanged) -> Exchanged:
        return Exchanged(self.traffic + other.traffic, self.spent_ps + other.spent_ps, self.histogram + other.histogram)

    def since(self, before: Exchanged) -> Exchanged:
        """Return the difference from an earlier total; the histogram remains that of the last gradients."""
        return Exchanged(self.traffic - before.traffic, self.spent_ps - before.spent_ps, self.histogram)
