"""`zero-bubble`: H1, 1F1B whose W fill the pipeline's bubbles (Qi et al., ICLR 2024, section 2.2).

Errors leave before the parameter gradients are computed. The further down the chain, the later W is, so that no device
keeps the features of more micro-batches than the first one under 1F1B.
"""

from __future__ import annotations

from .action import Schedule
from .kind import EpochShape, ScheduleKind
from .warm_up import single, warm_up


def zero_bubble(epoch: EpochShape) -> Schedule:
    """Return the schedule of 1F1B in which W of device i is late by i micro-batches."""
    return warm_up("zero-bubble", epoch, single(epoch.devices), late=range(epoch.devices))


ZERO_BUBBLE = ScheduleKind(
    "zero-bubble",
    zero_bubble,
    "one forward, one backward, late parameter gradients fill bubbles",
    drains=True,
    repeats=True,
    splits_backward=True,
)
