"""Means over the seeds of training runs, with their standard errors: a difference counts that exceeds both."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Mean:
    """A mean over seeds, and its standard error; infinite with one seed, so that no difference counts."""

    value: float
    error: float

    @classmethod
    def over(cls, values: Sequence[float]) -> Mean:
        """Return the mean of values, one for each seed; NaN where one of them is."""
        if any(map(math.isnan, values)):
            return cls(math.nan, math.inf)
        error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.inf
        return cls(statistics.mean(values), error)

    def differs(self, other: Mean) -> bool:
        """Return whether the difference exceeds both standard errors."""
        return abs(self.value - other.value) > max(self.error, other.error)

    def times(self, factor: float) -> Mean:
        """Return the mean in another unit."""
        return Mean(self.value * factor, self.error * factor)

    def shown(self, digits: int) -> str:
        """Return the mean as text, with `digits` decimals."""
        error = f"± {self.error:.{digits}f}" if self.error < math.inf else "(one seed)"
        return f"{self.value:.{digits}f} {error}"

    def __str__(self) -> str:
        return self.shown(1)
