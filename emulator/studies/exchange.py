"""Times in which workers exchange gradients, from the model alone: a ring, an aggregator, and hierarchies."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Literal

import numpy as np

from ...comm import Interconnect
from ...comm.exchange import VALUE_BYTES, aggregator_ps, bytes_at_ratio, hierarchy_ps, ring_messages, ring_ps


@dataclasses.dataclass(frozen=True)
class ExchangeTimes:
    """Times of one gradient exchange among `workers` in ps, compressed by `ratio` or, if None, not compressed.

    Hierarchies have `groups` groups.
    """

    workers: int
    groups: int
    ratio: float | None
    ring_ps: int
    aggregator_ps: int
    rings_under_aggregator_ps: int
    rings_of_rings_ps: int


def groups_of(workers: int) -> int:
    """Return the number of groups in a hierarchy: the largest divisor of `workers` up to its square root."""
    return max(groups for groups in range(1, math.isqrt(workers) + 1) if workers % groups == 0)


def exchange_times(interconnect: Interconnect, values: int, workers: int, ratio: float | None) -> ExchangeTimes:
    """Return the times in which `workers` exchange gradients of `values` values, all ready at once."""
    groups, ready = groups_of(workers), np.zeros(workers, np.int64)
    in_groups, gradients = ready.reshape(groups, -1), np.full(workers, VALUE_BYTES * values)
    compressed = None if ratio is None else functools.partial(bytes_at_ratio, ratio=ratio)
    blocks = None if compressed is None else compressed(ring_messages(values, workers))
    whole = None if compressed is None else compressed(gradients)

    def hierarchy(top: Literal["aggregator", "ring"]) -> int:
        return int(hierarchy_ps(interconnect, in_groups, values, top, compressed).max())

    return ExchangeTimes(
        workers,
        groups,
        ratio,
        ring_ps=int(ring_ps(interconnect, ready, values, blocks).max()),
        aggregator_ps=int(aggregator_ps(interconnect, ready, values, whole).max()),
        rings_under_aggregator_ps=hierarchy("aggregator"),
        rings_of_rings_ps=hierarchy("ring"),
    )
