"""Draws of uncertain constants, the same in every process: one factor for a constant, by its range.

A factor is log-normal, with the range's ends as 5th and 95th percentiles: constants scatter by shares of themselves,
and a calibration's range is such an interval of their logarithms. So where one constant limits, the range of the answer
is that of the constant. Of n draws, each n-th of the distribution has one (a Latin hypercube), which leaves little to
chance. The order of a constant's draws follows from its key alone: plans with other constants, in other processes, meet
the same draws.
"""

from __future__ import annotations

import functools
import math
import statistics
import zlib
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..cluster import ConstantRange

Floats: TypeAlias = NDArray[np.float64]

DRAWS, TIMING_DRAWS = 4000, 40
"""Draws of rates on a fixed plan, and of timings, which cost 1,000 times as much."""
LOWEST, HIGHEST = 5, 95
"""Percentiles that a range of answers, and one of constants, has as its ends."""

_SLOWING = ("_ns", "_us")
"""How keys of times end, which slow what they are in; all others speed it up."""


@functools.cache
def _ordered(count: int) -> Floats:
    """Return ascending normal deviates, one of each `count`-th of the distribution; the 95th percentile is 1."""
    normal = statistics.NormalDist()
    one = normal.inv_cdf(HIGHEST / 100)
    return np.array([normal.inv_cdf((place + 0.5) / count) / one for place in range(count)])


@functools.cache
def _deviates(key: str, count: int) -> Floats:
    """Return the deviates of a constant's draws."""
    return np.random.Generator(np.random.PCG64(zlib.crc32(key.encode()))).permutation(_ordered(count))


def middle(entry: ConstantRange) -> float:
    """Return the factor in the middle of a range, half of whose draws are larger."""
    return math.sqrt(entry.low * entry.high)


def factors(entry: ConstantRange, count: int = DRAWS) -> Floats:
    """Return a constant's factors, one of each draw."""
    if entry.is_exact:
        return np.ones(count)
    half = math.log(entry.high / entry.low) / 2
    return middle(entry) * np.exp(half * _deviates(entry.key, count))


def slows(key: str) -> bool:
    """Return whether more of a constant makes answers slower: it is a time."""
    return key.endswith(_SLOWING)
