"""`sync`, which drains the pipeline at each update, and schedules of its order on other machines.

It is the pipeline without staleness: every sample of a mini-batch sees the weights from the end of
the previous mini-batch, so the weights are those of mini-batch SGD, bit for bit. Its order is also
that of

- data parallelism: each device holds the whole network. The exchange of gradients, by a ring
  (`data-parallel-ring`) or an aggregator (`data-parallel-aggregator`), is part of the update;
- a GPU and an FPGA that train recurrent layers together (FARNN): `farnn` overlaps what both do,
  `farnn-no-overlap` does one task after another, and under `farnn-all-fpga` the FPGA does the input
  products, too. `gpu-standard` and `gpu-persistent` are the two forms of a GPU alone, as cuDNN has
  them (section 6.1). What each device does, and when, is in `emulator/timing/pair`.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from ..common import an
from .action import Schedule
from .fpdeep import pipeline
from .kind import Offload, ScheduleKind
from .shape import EpochShape, Staleness


def sync(epoch: EpochShape) -> Schedule:
    """Return the schedule that updates after each mini-batch, with the pipeline drained."""
    none = Staleness((0,) * epoch.batch, (0,) * epoch.batch)
    return pipeline("sync", [none] * epoch.devices, epoch)


@dataclasses.dataclass(frozen=True)
class InOrderOfSync:
    """A function that returns the schedule of `sync` under another name; one that was pickled
    equals the original.
    """

    name: str

    def __call__(self, epoch: EpochShape) -> Schedule:
        """Return the schedule of an epoch."""
        return dataclasses.replace(sync(epoch), name=self.name)


def _exchanging(exchange: Literal["ring", "aggregator"]) -> ScheduleKind:
    """Return the kind whose devices exchange gradients in this way."""
    name = f"data-parallel-{exchange}"
    summary = f"each device holds the whole network, and they exchange gradients by {an(exchange)}"
    return ScheduleKind(name, InOrderOfSync(name), summary, drains=True, replicates=exchange)


def _offloading(name: str, summary: str, offload: Offload) -> ScheduleKind:
    """Return the kind of a name in which a GPU, alone or with an FPGA, trains recurrent layers."""
    return ScheduleKind(
        name, InOrderOfSync(name), summary, drains=True, repeats=True, offload=offload
    )


SYNC = ScheduleKind("sync", sync, "drain at each update", drains=True, repeats=True)
RING, AGGREGATOR = _exchanging("ring"), _exchanging("aggregator")
FARNN = _offloading("farnn", "a GPU, and an FPGA for steps of recurrent layers", Offload.OVERLAPPED)
NO_OVERLAP = _offloading(
    "farnn-no-overlap", "the same, but one task after another", Offload.IN_TURN
)
ALL_FPGA = _offloading(
    "farnn-all-fpga", "the same, with the input products on the FPGA, too", Offload.ALL_STEPS
)
STANDARD = _offloading("gpu-standard", "a GPU alone, time step by time step", Offload.STANDARD)
PERSISTENT = _offloading(
    "gpu-persistent",
    "a GPU alone, which keeps recurrent weights on chip as far as it can",
    Offload.PERSISTENT,
)
