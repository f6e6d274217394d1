"""Data parallelism: each device holds the whole network; devices exchange gradients by a ring or an aggregator.

On the one device of each replica's chain the schedule is that of `sync`; the exchange, of `data-parallel-ring` or
`data-parallel-aggregator`, is part of the update.
"""

from __future__ import annotations

import functools

from .fpdeep import in_order_of_sync
from .kind import ScheduleKind

_SUMMARY = "each device holds the whole network, and they exchange gradients by"

RING = ScheduleKind(
    "data-parallel-ring",
    functools.partial(in_order_of_sync, "data-parallel-ring"),
    f"{_SUMMARY} a ring",
    drains=True,
    replicates="ring",
)
AGGREGATOR = ScheduleKind(
    "data-parallel-aggregator",
    functools.partial(in_order_of_sync, "data-parallel-aggregator"),
    f"{_SUMMARY} an aggregator",
    drains=True,
    replicates="aggregator",
)
