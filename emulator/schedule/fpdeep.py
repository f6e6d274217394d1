"""`fpdeep`: the continuous pipeline with slightly unaligned weights (FPDeep, section 4.4).

It never drains: "the forward propagation of training samples in the next mini-batch follows using the old parameters
until the last training sample is backward propagated". Which samples those are follows from virtual time; here they are
given, as staleness. If a device's version changes within a micro-batch, it does that micro-batch in spans.
"""

from __future__ import annotations

from .action import Schedule
from .kind import EpochShape, ScheduleKind
from .pipeline import pipeline


def fpdeep(epoch: EpochShape) -> Schedule:
    """Return FPDeep's continuous pipeline for the staleness of each device.

    Reading its programs raises InputError if weights and samples would wait for one another.
    """
    return pipeline("fpdeep", list(epoch.staleness), epoch)


FPDEEP = ScheduleKind(
    "fpdeep", fpdeep, "continuous, slightly unaligned weights", drains=False, repeats=True, aligned=False
)
