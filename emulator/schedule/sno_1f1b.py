"""`1f1b-sno`: 1F1B on GPUs, whose messages wait for their action (BaPipe, section III-C, Fig. 4a)."""

from __future__ import annotations

from .action import Schedule
from .kind import EpochShape, ScheduleKind
from .warm_up import single, warm_up


def sno_1f1b(epoch: EpochShape) -> Schedule:
    """Return the schedule with N-i+1 warm-up forwards on device i of N."""
    return warm_up("1f1b-sno", epoch, epoch.warm_ups or single(epoch.devices))


SNO_1F1B = ScheduleKind(
    "1f1b-sno",
    sno_1f1b,
    "one forward, one backward, communication not overlapped",
    drains=True,
    repeats=True,
    warm_ups=single,
)
