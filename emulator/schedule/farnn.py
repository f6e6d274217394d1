"""A GPU and an FPGA train recurrent layers together (FARNN), or a GPU alone, as cuDNN does (FARNN, section 6.1).

`farnn` overlaps what both do; `farnn-no-overlap` does one task after another; under `farnn-all-fpga` the FPGA does the
input products, too. `gpu-standard` and `gpu-persistent` are the two forms of a GPU alone.

The order of the numbers is that of `sync`, so weights are those of mini-batch SGD, bit for bit. What each device does,
and when, is in `emulator/pair`.
"""

from __future__ import annotations

from .fpdeep import InOrderOfSync
from .kind import Offload, ScheduleKind


def _offloading(name: str, summary: str, offload: Offload) -> ScheduleKind:
    """Return the kind of a name in which a GPU, alone or with an FPGA, trains recurrent layers."""
    return ScheduleKind(name, InOrderOfSync(name), summary, drains=True, repeats=True, offload=offload)


FARNN = _offloading("farnn", "a GPU, and an FPGA for steps of recurrent layers", Offload.OVERLAPPED)
NO_OVERLAP = _offloading("farnn-no-overlap", "the same, but one task after another", Offload.IN_TURN)
ALL_FPGA = _offloading("farnn-all-fpga", "the same, with the input products on the FPGA, too", Offload.ALL_STEPS)
STANDARD = _offloading("gpu-standard", "a GPU alone, time step by time step", Offload.STANDARD)
PERSISTENT = _offloading(
    "gpu-persistent", "a GPU alone, which keeps recurrent weights on chip as far as it can", Offload.PERSISTENT
)
