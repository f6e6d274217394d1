"""Data parallelism: each device holds the whole network; devices exchange gradients by a ring or an aggregator.

On the one device of each replica's chain the schedule is that of `sync`; the exchange is part of the update.
"""

from __future__ import annotations

import dataclasses

from .action import Schedule
from .kind import EpochShape, ScheduleKind
from .sync import sync

_RING, _AGGREGATOR = "data-parallel-ring", "data-parallel-aggregator"


def ring(epoch: EpochShape) -> Schedule:
    """Return the schedule of a device whose replicas exchange gradients by a ring."""
    return dataclasses.replace(sync(epoch), name=_RING)


def aggregator(epoch: EpochShape) -> Schedule:
    """Return the schedule of a device whose replicas exchange gradients by an aggregator."""
    return dataclasses.replace(sync(epoch), name=_AGGREGATOR)


_SUMMARY = "each device holds the whole network, and they exchange gradients by"

RING = ScheduleKind(_RING, ring, f"{_SUMMARY} a ring", drains=True, replicates="ring")
AGGREGATOR = ScheduleKind(_AGGREGATOR, aggregator, f"{_SUMMARY} an aggregator", drains=True, replicates="aggregator")
