"""Epochs of training, whatever trains them: their results, and the loop over them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ...comm import Ranks
from ..common import InputError
from ..device import Learnt, Tally
from .legs import Leg
from .replicas import Exchanged
from .sizes import EpochSizes, SentBy
from .usage import ResourceUse, Usage

Weights = dict[str, dict[str, NDArray[np.float32]]]
"""Arrays by name, by layer: weight (oc, ic, kh, kw), bias (oc,), and other arrays of its SFU.

A recurrent layer has PyTorch's names: weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0, weight_hr_l0 with a
projection, and the same with _reverse of its second direction.
"""


@dataclasses.dataclass(frozen=True)
class EpochResult:
    """One row of the history, with the usage so far; times are since the start of training.

    `exchanged` and `sizes`, those of compressed messages, are of this epoch, over all devices. `resources` are those of
    a pair, or of a GPU alone.
    """

    epoch: int
    learning_rate: float
    train: Tally
    test: Tally
    virtual_time_ps: int
    host_time_s: float
    usage: Usage
    exchanged: Exchanged = dataclasses.field(default_factory=Exchanged)
    sizes: EpochSizes = dataclasses.field(default_factory=dict, repr=False, compare=False)
    resources: tuple[ResourceUse, ...] = ()

    def row(self) -> EpochResult:
        """Return the epoch without the usage up to its end, which that of the next one replaces."""
        exchanged = self.exchanged if self.exchanged.traffic.value_bytes else _NOTHING
        return dataclasses.replace(self, usage=_UNUSED, resources=(), exchanged=exchanged)


@dataclasses.dataclass(frozen=True)
class StepResult:
    """A replica's share of a mini-batch that its chain's last device has finished."""

    epoch: int
    step: int
    tally: Tally
    virtual_time_ps: int


class Position(NamedTuple):
    """How far a run is: the epoch, counted from 0, and how many mini-batches of it are done."""

    epoch: int = 0
    step: int = 0


_NOTHING, _UNUSED = Exchanged(), Usage(0, (), ())

OnStep = Callable[[StepResult], None]
OnEpoch = Callable[[EpochResult, Weights], None]


@dataclasses.dataclass
class SoFar:
    """What rank 0 knows of an epoch that is not finished: by replica losses and hits, and sizes sent."""

    trained: dict[int, Tally] = dataclasses.field(default_factory=dict)
    sizes: dict[SentBy, NDArray[np.int64]] = dataclasses.field(default_factory=dict)

    def add(self, trained: Mapping[int, Tally], sizes: EpochSizes) -> None:
        """Add a leg, of some of the replicas."""
        for replica, tally in trained.items():
            self.trained[replica] = self.trained.get(replica, Tally()) + tally
        for source, of_leg in sizes.items():
            before = [self.sizes[source]] if source in self.sizes else []
            self.sizes[source] = np.concatenate([*before, of_leg])

    @property
    def tally(self) -> Tally:
        """Losses and hits of all replicas, in order, so that the sum does not depend on the ranks."""
        return sum((self.trained[replica] for replica in sorted(self.trained)), Tally())


class Trainer(Protocol):
    """This rank's part of what trains, a leg of an epoch at a time."""

    so_far: SoFar
    """The epoch's legs before this one, on rank 0."""

    history: list[EpochResult]
    """The finished epochs, on rank 0."""

    started_s: float
    """When training began by `time.perf_counter`, as if it had never been interrupted."""

    @property
    def legs(self) -> list[Leg]:
        """The legs of each epoch."""

    def train(self, number: int, leg: Leg) -> None:
        """Train a leg of an epoch."""

    def finish(self, number: int) -> EpochResult | None:
        """Evaluate after an epoch; return its result on rank 0, else None."""

    def learnt(self) -> list[list[Learnt]]:
        """Return what holds parameters on this rank, by replica."""

    def clocks(self) -> dict[str, Any]:
        """Return this rank's clocks and counters, as JSON has them; call only between legs."""

    def restore_clocks(self, state: Mapping[str, Any]) -> None:
        """Restore what all ranks' `clocks` returned."""

    def now_ps(self, position: Position) -> int:
        """Return the virtual time so far, over the devices of this rank."""

    def begin_at(self, position: Position, now_ps: int) -> None:
        """Go on from a virtual time with clocks that begin anew."""

    def usage(self) -> Usage:
        """Return the usage up to now, which is complete on rank 0; for all ranks together."""

    def weights(self) -> Weights:
        """Return all layers' weights, on rank 0; for all ranks together."""

    def close(self) -> None:
        """End all communication."""


class Checkpoints(Protocol):
    """What is done after each leg but an epoch's last, and after each epoch."""

    def begin(self, trainer: Trainer) -> Position:
        """Make all ranks go on where an earlier run was; return where that is."""

    def reach(self, trainer: Trainer, position: Position) -> bool:
        """Keep what all ranks need to go on from here; return whether the run ends."""

    def close(self) -> None:
        """Let others write the file."""


def train_epochs(
    trainer: Trainer,
    epochs: int,
    ranks: Ranks,
    on_epoch: OnEpoch,
    *,
    gather_weights: bool,
    checkpoints: Checkpoints | None = None,
) -> list[EpochResult]:
    """Train on all ranks together; return the history, on rank 0, with the usage up to the last epoch.

    Raises:
        InputError: the loss is no longer finite.
    """
    ranks.running = ranks.size > 1
    try:
        at = Position() if checkpoints is None else checkpoints.begin(trainer)
        ends = False
        if at.epoch >= epochs:  # nothing is left; the last epoch is reported again
            usage, weights = trainer.usage(), trainer.weights() if gather_weights else {}
            trainer.history[-1:] = [dataclasses.replace(row, usage=usage) for row in trainer.history[-1:]]
            for row in trainer.history[-1:]:
                on_epoch(row, weights)
        while at.epoch < epochs and not ends:
            [leg, *later] = [leg for leg in trainer.legs if leg.first >= at.step]
            trainer.train(at.epoch, leg)
            if later:
                at = Position(at.epoch, leg.last)
            else:
                result = trainer.finish(at.epoch)
                weights = trainer.weights() if gather_weights else {}
                if result is not None:
                    trainer.history[-1:] = [epoch.row() for epoch in trainer.history[-1:]]
                    trainer.history.append(result)
                    on_epoch(result, weights)
                at = Position(at.epoch + 1)
            ends = checkpoints is not None and checkpoints.reach(trainer, at)
    finally:
        ranks.on_object = lambda _: None
        if checkpoints is not None:
            checkpoints.close()
    ranks.running = False
    trainer.close()
    return trainer.history


class StepReports:
    """Adds up the mini-batches of a leg that end on this rank, and reports each of them to rank 0.

    `first` is the number of the leg's first mini-batch, and clocks began at the virtual time `from_ps`.

    Raises:
        InputError: the loss of one is not finite.
    """

    def __init__(
        self, ranks: Ranks, epoch: int, learning_rate: float, weight_decay: float, first: int = 0, from_ps: int = 0
    ) -> None:
        self.total = Tally()
        self._ranks, self._epoch, self._rate, self._decay = ranks, epoch, learning_rate, weight_decay
        self._first, self._from_ps = first, from_ps

    def __call__(self, step: int, tally: Tally, virtual_time_ps: int) -> None:
        """Take a finished mini-batch, whose number is counted from the leg's begin."""
        step += self._first
        if not math.isfinite(tally.loss):
            # An update takes this share of a weight away: from 1 on, weights turn over and grow.
            by_decay = self._rate * self._decay >= 1
            name, value = ("weight_decay", self._decay) if by_decay else ("learning_rate", self._rate)
            smaller = min(value, 1 / self._rate) / 10 if by_decay else value / 10
            raise InputError(
                f"`{name}` = {value:g}: training diverged, the loss is {tally.mean_loss}"
                f" in epoch {self._epoch + 1}, step {step + 1}; try a smaller one, such as {smaller:g}"
            )
        self.total += tally
        self._ranks.send_to_root(StepResult(self._epoch, step, tally, virtual_time_ps + self._from_ps))
