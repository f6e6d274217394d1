"""Ranges of constants, from the scatter between runs: 90 % of further runs lie within.

A run's own residuals say little of how the next run differs: ranges made of them hold 17 to 48 % of other runs.
So each run gives its own value, and of R of them follows exp(mean ± t · max(tau, 0.5 %) · sqrt(1 + 1/R)), mean and tau
of the logarithms, with Student's t at 0.95 for R - 1 degrees of freedom. With one run only the floor of 0.5 % is known,
and t is the normal distribution's.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

FLOOR = 0.005
"""Least relative standard deviation between runs: what a file cannot show, such as the day or the room."""

ONE_RUN = f"one run: nothing is known of the scatter between runs; ranges are those of the floor of {100 * FLOOR:g} %"
"""What a user is told of data of one run."""

_MOST_LEFT_OUT = 30
"""Runs that are left out: with more, fits take time and the mean error hardly changes."""

_LEVEL = 0.95
_NORMAL = 1.6448536269514722


class Range(NamedTuple):
    """A range that holds 90 % of further runs, and the number of runs from which it follows."""

    low: float
    high: float
    runs: int

    @property
    def half_width(self) -> float:
        """Half of the width, as a share of the middle."""
        return math.sqrt(self.high / self.low) - 1

    def times(self, factor: float) -> Range:
        """Return the range in another unit."""
        return Range(self.low * factor, self.high * factor, self.runs)

    def around(self, value: float) -> Range:
        """Return the range, widened where a value lies outside."""
        return Range(min(self.low, value), max(self.high, value), self.runs)


def range_of(values: Sequence[float]) -> Range:
    """Return the range of a constant, of which each run gives a value above zero."""
    runs = len(values)
    logs = [math.log(value) for value in values]
    mean = math.fsum(logs) / runs
    tau = math.sqrt(math.fsum((log - mean) ** 2 for log in logs) / (runs - 1)) if runs > 1 else 0.0
    half = student(runs - 1) * max(tau, FLOOR) * math.sqrt(1 + 1 / runs)
    return Range(math.exp(mean - half), math.exp(mean + half), runs)


def left_out_runs(runs: Sequence[str]) -> list[str]:
    """Return which runs are left out one by one, to see how well the others predict them: of many, some."""
    return [*runs[:: math.ceil(len(runs) / _MOST_LEFT_OUT)]]


@functools.cache
def student(freedom: int) -> float:
    """Return the 0.95 quantile of Student's t; of the normal distribution without any degree of freedom."""
    if freedom == 0:
        return _NORMAL
    low, high = _NORMAL, 7.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        low, high = (middle, high) if _below(middle, freedom) < _LEVEL else (low, middle)
    return (low + high) / 2


def _below(t: float, freedom: int) -> float:
    """Return the probability of values below `t`: a finite sum for whole degrees of freedom."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine = math.cos(angle)
    term = total = 1.0 if freedom % 2 == 0 else cosine
    for k in range(freedom % 2 + 2, freedom, 2):
        term *= (k - 1) / k * cosine**2
        total += term
    if freedom % 2 == 0:
        return 0.5 + math.sin(angle) * total / 2
    return 0.5 + (angle + (math.sin(angle) * total if freedom > 1 else 0)) / math.pi
