"""Data parallelism: each device holds the whole network; devices exchange gradients by a ring or an aggregator.

On the one device of each replica's chain the schedule is that of `sync`; the exchange, of `data-parallel-ring` or
`data-parallel-aggregator`, is part of the update.
"""

from __future__ import annotations

from typing import Literal

from ..common import an
from .fpdeep import InOrderOfSync
from .kind import ScheduleKind


def _exchanging(exchange: Literal["ring", "aggregator"]) -> ScheduleKind:
    """Return the kind whose devices exchange gradients in this way."""
    name = f"data-parallel-{exchange}"
    summary = f"each device holds the whole network, and they exchange gradients by {an(exchange)}"
    return ScheduleKind(name, InOrderOfSync(name), summary, drains=True, replicates=exchange)


RING, AGGREGATOR = _exchanging("ring"), _exchanging("aggregator")
