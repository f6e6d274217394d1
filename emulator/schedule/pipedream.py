"""`pipedream`: 1F1B without a flush, with weight stashing (Narayanan et al., SOSP 2019, sections 3.2 and 3.3).

What enters the pipeline is a mini-batch: device i of N, from 1 on, has N-i+1 of them in flight and updates after each.
F uses the newest weights, B and W those of their F; so device i keeps N-i+1 versions, and mini-batch n, from 0 on, uses
version max(0, n - (N-i)). Micro-batches of a mini-batch follow on one another: all their F, then all their B.
"""

from __future__ import annotations

import itertools

from .action import Schedule, cut_samples
from .kind import EpochShape, ScheduleKind
from .unflushed import unflushed
from .warm_up import single


def pipedream(epoch: EpochShape) -> Schedule:
    """Return the schedule in which each device stashes as many versions as it has mini-batches in flight."""
    micro_batches = cut_samples(epoch.samples, epoch.batch, epoch.micro_batch)
    steps = [list(group) for _, group in itertools.groupby(micro_batches, key=lambda micro_batch: micro_batch.step)]
    return unflushed("pipedream", epoch, steps, single(epoch.devices), _newest)


def _newest(step: int, in_flight: int) -> int:
    """Return the version after the last update before F of a mini-batch."""
    return max(0, step - in_flight + 1)


PIPEDREAM = ScheduleKind("pipedream", pipedream, "one forward, one backward, no flush, stashed weights", drains=False)
