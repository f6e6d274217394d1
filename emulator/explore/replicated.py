"""Data parallelism as a candidate: every device trains the whole network."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Sequence

import numpy as np

from ...comm.exchange import VALUE_BYTES, ring_ps
from ..profile import DoesNotFit, Stages
from .candidate import Candidate, Wires

DATA_PARALLEL = "data-parallel"


def data_parallel(stages: Stages, wires: Wires, micro_batches: int, *, together: bool = True) -> Candidate:
    """Return data parallelism as a candidate: each device trains all layers, and a ring exchanges the gradients.

    Micro-batches are dealt so that the slowest device ends as early as possible. Weights are off chip as soon as not
    all of them fit, if they are so `together`. The exchange begins when all devices are done.
    """
    found = Candidate(DATA_PARALLEL, stages.samples, micro_batches)
    times, parameters = [], 0
    for device in range(stages.devices):
        try:
            costs = stages.costs(0, stages.end, device, 1, together=together)
        except DoesNotFit as shortage:
            return dataclasses.replace(found, why_not=str(shortage))
        times.append(costs.work_ps)
        parameters = costs.parameter_bytes
    dealt = deal(times, micro_batches)
    ends = [count * time for count, time in zip(dealt, times, strict=True)]
    exchange = 0
    if stages.devices > 1:
        ready = np.zeros(stages.devices, np.int64)
        exchange = int(ring_ps(wires.interconnect, ready, -(-parameters // VALUE_BYTES)).max())
    slowest = ends.index(max(ends))
    limit = f"device {slowest} ({stages.kinds[slowest]})" if max(ends) >= exchange else "exchange of gradients"
    return dataclasses.replace(
        found,
        time_ps=max(ends) + exchange,
        dealt=dealt,
        compute_ps=max(ends),
        exchange_ps=exchange,
        limit=limit,
    )


def deal(times_ps: Sequence[int], count: int) -> tuple[int, ...]:
    """Return how many of `count` equal tasks each device gets so that the last one ends as early as possible."""
    dealt = [0] * len(times_ps)
    ends = [(time, device) for device, time in enumerate(times_ps)]
    heapq.heapify(ends)
    for _ in range(count):
        end, device = ends[0]
        dealt[device] += 1
        heapq.heapreplace(ends, (end + times_ps[device], device))
    return tuple(dealt)
