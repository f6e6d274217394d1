"""What a GPU gives to an FPGA of the training of recurrent layers, or does itself (FARNN)."""

from __future__ import annotations

import enum


class Offload(enum.Enum):
    """Who does what, and what runs side by side."""

    OVERLAPPED = "overlapped"
    """The FPGA does R-MVM and activations, the GPU all else, side by side with transfers and with the FPGA."""
    IN_TURN = "in turn"
    """The same, with each task after the one before it."""
    ALL_STEPS = "all steps"
    """The FPGA does I-MVM, too; GC and WU stay on the GPU."""
    STANDARD = "standard"
    """The GPU alone, in cuDNN's standard form: each time step is a phase of its own."""
    PERSISTENT = "persistent"
    """The GPU alone, in cuDNN's persistent form: one kernel for all time steps."""

    @property
    def devices(self) -> int:
        """Number of devices: a GPU alone, or with an FPGA."""
        return 1 if self in (Offload.STANDARD, Offload.PERSISTENT) else 2
