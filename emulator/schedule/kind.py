"""Kinds of schedules: each is a file of this folder with a `ScheduleKind`, which is found by its name."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Literal

from ...kernels import instances
from .action import Schedule
from .offload import Offload

_STEPS_TO_CHECK = 6


@dataclasses.dataclass(frozen=True)
class Staleness:
    """The number of updates by which a device's weights are late, in F and in B, for each sample of a mini-batch.

    Samples come in order, so staleness never grows within a mini-batch, and grows by at most one from its last sample
    to the first of the next.
    """

    forward: tuple[int, ...]
    backward: tuple[int, ...]

    def __post_init__(self) -> None:
        for late in (self.forward, self.backward):
            if list(late) != sorted(late, reverse=True) or late[0] > late[-1] + 1 or late[-1] < 0:
                raise ValueError(f"staleness {late} would take weights back to an older version")

    def at_least(self, other: Staleness) -> Staleness:
        """Return the larger staleness of both, sample by sample."""
        return Staleness(tuple(map(max, self.forward, other.forward)), tuple(map(max, self.backward, other.backward)))

    @property
    def stale_samples(self) -> int:
        """Number of samples of a mini-batch whose FP uses old weights."""
        return sum(late > 0 for late in self.forward)


@dataclasses.dataclass(frozen=True)
class EpochShape:
    """The epoch that a schedule is made for: `samples` samples on a chain of `devices` devices.

    `staleness` is that of each device in the steady pipeline, where nothing waits for updates. `stores` are pairs of
    devices (user, store), of which the first uses parameters that the second stores. There are `chunks` stages on each
    device: stage c N + d of N devices is chunk c of device d. `warm_ups` are each device's warm-up forwards; if there
    are none, the kind of schedule decides.
    """

    devices: int
    samples: int
    batch: int
    micro_batch: int
    staleness: tuple[Staleness, ...] = ()
    stores: tuple[tuple[int, int], ...] = ()
    chunks: int = 1
    warm_ups: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class ScheduleKind:
    """A way to schedule an epoch.

    `generate` is a pure function that returns the schedule of an epoch. Where the schedule `drains`, the pipeline is
    empty at each update; otherwise samples enter without a pause. Where it `replicates`, each device holds the whole
    network, and devices exchange gradients in this way. Where it `repeats`, each mini-batch has the actions of the one
    before it with all numbers higher, once no sample of either uses the first weights. `summary` is a line for --help.

    `chunks` is the number of stages on a device where none is asked for; only a kind that has more than one takes
    another number. `warm_ups` gives each device's warm-up forwards for a number of devices; only a kind that has
    it takes others. Where it `splits_backward`, errors leave before the parameter gradients are computed. Where it is
    `aligned`, F, B and W of a sample use the same version of the weights; otherwise each sees those that are newest in
    the steady pipeline (`EpochShape.staleness`). With `offload`, a GPU trains recurrent layers, alone or with an FPGA.
    """

    name: str
    generate: Callable[[EpochShape], Schedule]
    summary: str
    drains: bool
    replicates: Literal["ring", "aggregator"] | None = None
    repeats: bool = False
    chunks: int = 1
    warm_ups: Callable[[int], tuple[int, ...]] | None = None
    splits_backward: bool = False
    aligned: bool = True
    offload: Offload | None = None

    @property
    def takes_warm_ups(self) -> bool:
        """Whether `EpochShape.warm_ups` changes its schedule."""
        return self.warm_ups is not None

    def steps_to_check(self, epoch: EpochShape) -> int:
        """Return the number of mini-batches whose dry run shows what that of any number would.

        If staleness is at most L, mini-batches 0 to L use the first weights. Number L + 1 is the first in which every
        wait is one for weights that were made, and of a schedule that repeats all further ones wait alike: for samples
        of the same mini-batch, or for versions up to L earlier. So a circle of waits closes within L + 2 mini-batches.
        Balanced parameters wait for updates of other devices, too, in chains that may be longer; then, and where a
        schedule does not say that it repeats, more are checked.
        """
        if not self.repeats or epoch.stores:
            return _STEPS_TO_CHECK
        late = max(max(each.forward + each.backward) for each in epoch.staleness) if not self.drains else 0
        return min(late + 2, _STEPS_TO_CHECK)


@functools.cache
def schedules() -> Mapping[str, ScheduleKind]:
    """Return all kinds that come with emuchain, by name: those of one chain, of replicas, then of GPUs."""

    def family(kind: ScheduleKind) -> tuple[bool, bool]:
        return kind.offload is not None, kind.replicates is not None

    found = sorted(instances(__package__, ScheduleKind), key=family)
    return {kind.name: kind for kind in found}
