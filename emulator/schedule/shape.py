"""What a schedule is made for: the epoch that is trained, or the mini-batch whose time is asked for."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence

from ..common import InputError
from .machine import Machine, StageCosts


@dataclasses.dataclass(frozen=True)
class Staleness:
    """The number of updates by which a device's weights are late, in F and in B, for each sample of a mini-batch.

    Samples come in order, so staleness never grows within a mini-batch, and grows by at most one from its last sample
    to the first of the next.
    """

    forward: tuple[int, ...]
    backward: tuple[int, ...]

    def __post_init__(self) -> None:
        for name in ("forward", "backward"):
            object.__setattr__(self, name, _updates(getattr(self, name)))
        if len(self.forward) != len(self.backward):
            raise InputError(
                f"staleness of {len(self.forward)} samples forward, {len(self.backward)} backward: each should be of"
                " all samples of a mini-batch"
            )

    def at_least(self, other: Staleness) -> Staleness:
        """Return the larger staleness of both, sample by sample."""
        return Staleness(tuple(map(max, self.forward, other.forward)), tuple(map(max, self.backward, other.backward)))

    @property
    def stale_samples(self) -> int:
        """Number of samples of a mini-batch whose FP uses old weights."""
        return sum(late > 0 for late in self.forward)


def _updates(late: Sequence[int]) -> tuple[int, ...]:
    """Return the updates by which a mini-batch's samples are late.

    Raises:
        InputError: there are none, they are no whole numbers, or weights would go back.
    """
    try:
        updates = tuple(map(operator.index, late))
    except TypeError:
        updates = ()
    if not updates:
        raise InputError(f"staleness {late!r:.80}: should be whole numbers, one for each sample of a mini-batch")
    if list(updates) != sorted(updates, reverse=True) or updates[0] > updates[-1] + 1 or updates[-1] < 0:
        raise InputError(
            f"staleness {str(updates)[:80]} would take weights back to an older version; it should never grow within a"
            " mini-batch, fall by 1 at most, and be 0 or more"
        )
    return updates


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
class Shape:
    """One mini-batch of `micro_batches` micro-batches on a chain of `devices` devices.

    `costs` are those of each stage; there are `chunks` stages on each device. `warm_ups` are each device's warm-up
    forwards, None where the kind of schedule decides.
    """

    devices: int
    micro_batches: int
    costs: Sequence[StageCosts]
    machine: Machine
    chunks: int = 1
    warm_ups: tuple[int, ...] | None = None

    @property
    def epoch(self) -> EpochShape:
        """The epoch of this one mini-batch, with micro-batches of one sample."""
        return EpochShape(
            self.devices, self.micro_batches, self.micro_batches, 1, chunks=self.chunks, warm_ups=self.warm_ups or ()
        )

    @property
    def uniform(self) -> StageCosts | None:
        """The costs of every stage, None if they differ."""
        return self.costs[0] if all(each == self.costs[0] for each in self.costs) else None


@dataclasses.dataclass(frozen=True)
class ClosedForm:
    """The time of a mini-batch in ps by a formula, and whether that is exact here; `valid` says where it is."""

    time_ps: int
    valid: str
    exact: bool
