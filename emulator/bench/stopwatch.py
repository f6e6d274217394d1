"""Fair timing: calls run one after the other, repeatedly, so that a slow moment of the machine affects all of them.

Ratios are computed within a round, between adjacent timings, and then the median over the rounds. Time is the processor
time of this process, summed over its threads: other programs do not count, and a second thread of a call would.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Sequence

MOST_ROUNDS = 31

Clock = Callable[[], float]


@dataclasses.dataclass(frozen=True)
class Pace:
    """Length of a measurement: at least `rounds` rounds; more, up to MOST_ROUNDS, until they have lasted `enough_s`.

    A timing repeats its call for at least `least_s`, since a single short call says little.
    """

    rounds: int
    least_s: float = 0.01
    enough_s: float = 0.5


def interleaved(
    calls: Sequence[Callable[[], object]], pace: Pace, clock: Clock = time.process_time
) -> list[list[float]]:
    """Return each call's seconds in each round; one-off work (such as compiling) is done before."""
    for call in calls:
        call()
    counts = [_count(call, pace.least_s, clock) for call in calls]
    timings: list[list[float]] = [[] for _ in calls]
    started_s, rounds = clock(), 0
    while rounds < pace.rounds or (rounds < MOST_ROUNDS and clock() - started_s < pace.enough_s):
        for call, count, mine in zip(calls, counts, timings, strict=True):
            mine.append(_time(call, count, clock) / count)
        rounds += 1
    return timings


def _count(call: Callable[[], object], least_s: float, clock: Clock) -> int:
    """Return a number of calls that takes at least `least_s`."""
    count = 1
    while (lasted_s := _time(call, count, clock)) < least_s:
        count = max(2 * count, math.ceil(count * least_s / lasted_s) if lasted_s > 0 else 0)
    return count


def _time(call: Callable[[], object], count: int, clock: Clock) -> float:
    started_s = clock()
    for _ in range(count):
        call()
    return clock() - started_s


def median_ratio(upper: Sequence[float], lower: Sequence[float]) -> float:
    """Return the median of `upper` / `lower` over the rounds."""
    return statistics.median(u / v for u, v in zip(upper, lower, strict=True))


def geometric_mean(ratios: Sequence[float]) -> float:
    """Return the geometric mean of ratios: that of 2 and 1/2 is 1."""
    return statistics.geometric_mean(ratios)
