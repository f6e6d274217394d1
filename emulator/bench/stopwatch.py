"""Timing things fairly: one after the other, again and again, so that a slow moment of the machine hits all of them.

Ratios are taken within a round, between timings that were made side by side, and then the median over the rounds. Time
is the processor's for this process, all threads of it: what other programs get is not counted, and a call that would
take a second thread would pay for it.
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
    """How long to measure: at least `rounds` rounds; more, up to MOST_ROUNDS, until they have lasted `enough_s`.

    A timing calls as often as takes `least_s`, since a single short call says little.
    """

    rounds: int
    least_s: float = 0.01
    enough_s: float = 0.5


def interleaved(
    calls: Sequence[Callable[[], object]], pace: Pace, clock: Clock = time.process_time
) -> list[list[float]]:
    """For each call its seconds in each round; what is done only once (compiling, say) is done before."""
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
    """How many calls last `least_s`."""
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
    """The median of upper / lower, round by round."""
    return statistics.median(u / v for u, v in zip(upper, lower, strict=True))


def geometric_mean(ratios: Sequence[float]) -> float:
    """The mean of ratios: 2 and 1/2 have 1."""
    return statistics.geometric_mean(ratios)
