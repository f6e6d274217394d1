"""`gpu-standard` and `gpu-persistent`: a GPU trains recurrent layers alone, as cuDNN does (FARNN, section 6.1).

The order of the numbers is that of `sync`.
"""

from __future__ import annotations

import dataclasses

from .action import Schedule
from .kind import EpochShape, ScheduleKind
from .offload import Offload
from .sync import sync

_STANDARD, _PERSISTENT = "gpu-standard", "gpu-persistent"


def standard(epoch: EpochShape) -> Schedule:
    """Return the schedule of a GPU alone, in cuDNN's standard form."""
    return dataclasses.replace(sync(epoch), name=_STANDARD)


def persistent(epoch: EpochShape) -> Schedule:
    """Return the schedule of a GPU alone, in cuDNN's persistent form."""
    return dataclasses.replace(sync(epoch), name=_PERSISTENT)


STANDARD = ScheduleKind(
    _STANDARD,
    standard,
    "a GPU alone, time step by time step",
    drains=True,
    repeats=True,
    offload=Offload.STANDARD,
)
PERSISTENT = ScheduleKind(
    _PERSISTENT,
    persistent,
    "a GPU alone, which keeps recurrent weights on chip as far as it can",
    drains=True,
    repeats=True,
    offload=Offload.PERSISTENT,
)
