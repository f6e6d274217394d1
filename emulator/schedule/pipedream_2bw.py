"""`2bw`: 1F1B without a flush, with weights that are late by one update (Narayanan et al., ICML 2021: PipeDream-2BW).

Gradients of a mini-batch's micro-batches are summed, and W(t+1) = W(t) - rate * gradient(W(t-1)) on every device: a
mini-batch uses the version before the newest one that its first sample could have seen. So two versions are enough.
With M micro-batches in a mini-batch, version t-1 is there for F of mini-batch t if at most M+1 micro-batches are in
flight: of M >= N-1, no device of N waits; with fewer, devices have M+1 in flight.
"""

from __future__ import annotations

from .action import Schedule, cut_samples
from .kind import EpochShape, ScheduleKind
from .unflushed import unflushed
from .warm_up import single


def pipedream_2bw(epoch: EpochShape) -> Schedule:
    """Return the schedule in which each device keeps two versions, and mini-batch t uses version t-1."""
    units = [[micro_batch] for micro_batch in cut_samples(epoch.samples, epoch.batch, epoch.micro_batch)]
    most = -(-epoch.batch // epoch.micro_batch) + 1
    forwards = [min(ahead, most) for ahead in single(epoch.devices)]
    return unflushed("2bw", epoch, units, forwards, _one_late)


def _one_late(step: int, _in_flight: int) -> int:
    """Return the version that a mini-batch uses; the first has none before its own."""
    return max(0, step - 1)


PIPEDREAM_2BW = ScheduleKind(
    "2bw", pipedream_2bw, "one forward, one backward, no flush, weights late by one update", drains=False
)
