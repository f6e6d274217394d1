"""Zero-bubble H1: 1F1B whose W fill the pipeline's bubbles (Qi et al., ICLR 2024, section 2.2).

Errors leave before the parameter gradients are computed. The further down the chain, the later W is, so that no device
keeps the features of more micro-batches than the first one under 1F1B.
"""

from __future__ import annotations

from .action import Schedule
from .kind import EpochShape
from .warm_up import warm_up


def zero_bubble(epoch: EpochShape) -> Schedule:
    """Return the schedule of 1F1B in which W of device i is late by i micro-batches."""
    stages = range(epoch.devices)
    return warm_up("zero-bubble", epoch, [epoch.devices - stage for stage in stages], late=stages)
