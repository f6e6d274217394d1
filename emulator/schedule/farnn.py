"""`farnn`: a GPU and an FPGA train recurrent layers together (FARNN), and the two other ways that it is compared with.

The order of the numbers is that of `sync`, so weights are those of mini-batch SGD, bit for bit. What each device does,
and when, is in `emulator/pair`.
"""

from __future__ import annotations

import dataclasses

from .action import Schedule
from .kind import EpochShape, ScheduleKind
from .offload import Offload
from .sync import sync

_OVERLAPPED, _IN_TURN, _ALL = "farnn", "farnn-no-overlap", "farnn-all-fpga"


def overlapped(epoch: EpochShape) -> Schedule:
    """Return the schedule of a pair whose GPU works beside the FPGA."""
    return dataclasses.replace(sync(epoch), name=_OVERLAPPED)


def in_turn(epoch: EpochShape) -> Schedule:
    """Return the schedule of a pair that does one task after another."""
    return dataclasses.replace(sync(epoch), name=_IN_TURN)


def all_steps(epoch: EpochShape) -> Schedule:
    """Return the schedule of a pair whose FPGA does all of FW and BW of recurrent layers."""
    return dataclasses.replace(sync(epoch), name=_ALL)


FARNN = ScheduleKind(
    _OVERLAPPED,
    overlapped,
    "a GPU, and an FPGA for steps of recurrent layers",
    drains=True,
    repeats=True,
    offload=Offload.OVERLAPPED,
)
NO_OVERLAP = ScheduleKind(
    _IN_TURN,
    in_turn,
    "the same, but one task after another",
    drains=True,
    repeats=True,
    offload=Offload.IN_TURN,
)
ALL_FPGA = ScheduleKind(
    _ALL,
    all_steps,
    "the same, with the input products on the FPGA, too",
    drains=True,
    repeats=True,
    offload=Offload.ALL_STEPS,
)
