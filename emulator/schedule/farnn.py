"""A GPU and an FPGA train recurrent layers together (FARNN), or a GPU alone, as cuDNN does (FARNN, section 6.1).

`farnn` overlaps what both do; `farnn-no-overlap` does one task after another; under `farnn-all-fpga` the FPGA does the
input products, too. `gpu-standard` and `gpu-persistent` are the two forms of a GPU alone.

The order of the numbers is that of `sync`, so weights are those of mini-batch SGD, bit for bit. What each device does,
and when, is in `emulator/pair`.
"""

from __future__ import annotations

import functools

from .fpdeep import in_order_of_sync
from .kind import Offload, ScheduleKind

FARNN = ScheduleKind(
    "farnn",
    functools.partial(in_order_of_sync, "farnn"),
    "a GPU, and an FPGA for steps of recurrent layers",
    drains=True,
    repeats=True,
    offload=Offload.OVERLAPPED,
)
NO_OVERLAP = ScheduleKind(
    "farnn-no-overlap",
    functools.partial(in_order_of_sync, "farnn-no-overlap"),
    "the same, but one task after another",
    drains=True,
    repeats=True,
    offload=Offload.IN_TURN,
)
ALL_FPGA = ScheduleKind(
    "farnn-all-fpga",
    functools.partial(in_order_of_sync, "farnn-all-fpga"),
    "the same, with the input products on the FPGA, too",
    drains=True,
    repeats=True,
    offload=Offload.ALL_STEPS,
)
STANDARD = ScheduleKind(
    "gpu-standard",
    functools.partial(in_order_of_sync, "gpu-standard"),
    "a GPU alone, time step by time step",
    drains=True,
    repeats=True,
    offload=Offload.STANDARD,
)
PERSISTENT = ScheduleKind(
    "gpu-persistent",
    functools.partial(in_order_of_sync, "gpu-persistent"),
    "a GPU alone, which keeps recurrent weights on chip as far as it can",
    drains=True,
    repeats=True,
    offload=Offload.PERSISTENT,
)
