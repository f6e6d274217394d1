"""`1f1b-so`: 1F1B on GPUs with a doubled warm-up (BaPipe, section III-C, Fig. 4b)."""

from __future__ import annotations

from .action import Schedule
from .kind import EpochShape, ScheduleKind
from .warm_up import doubled, warm_up


def so_1f1b(epoch: EpochShape) -> Schedule:
    """Return the schedule with 2(N-i+1) warm-up forwards on device i of N."""
    return warm_up("1f1b-so", epoch, epoch.warm_ups or doubled(epoch.devices))


SO_1F1B = ScheduleKind(
    "1f1b-so",
    so_1f1b,
    "one forward, one backward, doubled warm-up overlaps communication",
    drains=True,
    repeats=True,
    warm_ups=doubled,
)
