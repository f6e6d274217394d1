"""`fbp-as`: F and B in parallel, as FPDeep has them (BaPipe, section III-C, Fig. 3b)."""

from __future__ import annotations

from .action import Schedule
from .kind import EpochShape, ScheduleKind
from .warm_up import doubled, warm_up


def fbp_as(epoch: EpochShape) -> Schedule:
    """Return the schedule with 2(N-i+1) warm-up forwards on device i of N."""
    return warm_up("fbp-as", epoch, epoch.warm_ups or doubled(epoch.devices))


FBP_AS = ScheduleKind(
    "fbp-as",
    fbp_as,
    "forward and backward side by side, communication hidden",
    drains=True,
    repeats=True,
    warm_ups=doubled,
)
