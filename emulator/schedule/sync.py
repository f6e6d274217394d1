"""`sync`: one forward, one backward at a time; the pipeline drains at each update.

Every sample of a mini-batch sees the weights from the end of the previous mini-batch, so the weights are those of
mini-batch SGD, bit for bit.
"""

from __future__ import annotations

from .action import Schedule
from .kind import EpochShape, ScheduleKind, Staleness
from .pipeline import pipeline


def sync(epoch: EpochShape) -> Schedule:
    """Return the schedule that updates after each mini-batch, with the pipeline drained."""
    none = Staleness((0,) * epoch.batch, (0,) * epoch.batch)
    return pipeline("sync", [none] * epoch.devices, epoch)


SYNC = ScheduleKind("sync", sync, "drain at each update", drains=True, repeats=True)
