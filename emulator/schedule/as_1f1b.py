"""`1f1b-as`: 1F1B on accelerators that send while they compute (BaPipe, section III-C, Fig. 3a)."""

from __future__ import annotations

from .action import Schedule
from .kind import EpochShape, ScheduleKind
from .warm_up import single, warm_up


def as_1f1b(epoch: EpochShape) -> Schedule:
    """Return the schedule with N-i+1 warm-up forwards on device i of N."""
    return warm_up("1f1b-as", epoch, epoch.warm_ups or single(epoch.devices))


AS_1F1B = ScheduleKind(
    "1f1b-as", as_1f1b, "one forward, one backward, communication hidden", drains=True, repeats=True, warm_ups=single
)
