"""A learning rate that falls with the root of steps: `--lr-schedule root:every=100`."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from emuchain import RateSchedule


@dataclasses.dataclass(frozen=True)
class Root(RateSchedule):
    """1 / sqrt(1 + n / every) of the rate, n mini-batches after the warm-up."""

    every: float = 1.0

    name: ClassVar[str] = "root"

    def relative(self, epoch: int, after: int, most: int) -> float:
        """See `RateSchedule`."""
        return float((1 + after / self.every) ** -0.5)
