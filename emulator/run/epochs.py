"""Epochs of training, whatever trains them: what does it, what keeps it, and the loop over them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ...launch import Ranks
from ..device import Learnt
from .legs import Leg, Position
from .record import EpochResult, History, SoFar, StepResult, Usage, Weights

OnStep = Callable[[StepResult], None]
OnEpoch = Callable[[EpochResult, Weights], None]


class Trainer(Protocol):
    """This rank's part of what trains, a leg of an epoch at a time."""

    so_far: SoFar
    """The epoch's legs before this one, on rank 0."""

    history: History
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

    @property
    def began(self) -> tuple[Position, int]:
        """Where and at what virtual time in ps its clocks began at 0."""

    def begin_at(self, position: Position, now_ps: int) -> Trainer:
        """Return the trainer whose clocks begin at 0 at a position and a virtual time; it has nothing of this one."""

    def at(self, position: Position) -> Trainer:
        """Return the trainer that trains on from a position, with all that this one has; mostly this one."""

    def usage(self) -> Usage:
        """Return the usage up to now, which is complete on rank 0; for all ranks together."""

    def weights(self) -> Weights:
        """Return all layers' weights, on rank 0; for all ranks together."""

    def close(self) -> None:
        """End all communication."""


class Checkpoints(Protocol):
    """What is done after each leg but an epoch's last, and after each epoch."""

    @property
    def saves(self) -> bool:
        """Whether a run that is asked to end can wait until its next checkpoint."""

    def begin(self, trainer: Trainer) -> tuple[Trainer, Position]:
        """Make all ranks go on where an earlier run was; return what trains, and where that is."""

    def reach(self, trainer: Trainer, position: Position) -> bool:
        """Keep what all ranks need to resume from here; return whether the run ends."""

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
) -> History:
    """Train on all ranks together; return the history, on rank 0, with the usage up to the last epoch.

    Raises:
        InputError: the loss is no longer finite.
    """
    ranks.running = ranks.size > 1
    try:
        trainer, at = (trainer, Position()) if checkpoints is None else checkpoints.begin(trainer)
        ends = False
        if at.epoch >= epochs:  # nothing is left; the last epoch is reported again
            usage, weights = trainer.usage(), trainer.weights() if gather_weights else {}
            trainer.history[-1:] = [dataclasses.replace(row, usage=usage) for row in trainer.history[-1:]]
            for row in trainer.history[-1:]:
                on_epoch(row, weights)
        while at.epoch < epochs and not ends:
            trainer = trainer.at(at)
            [leg, *later] = [leg for leg in trainer.legs if leg.first >= at.step]
            trainer.train(at.epoch, leg)
            if later:
                at = Position(at.epoch, leg.last)
            else:
                result = trainer.finish(at.epoch)
                weights = trainer.weights() if gather_weights else {}
                if result is not None:
                    trainer.history.append(result)
                    with ranks.away():
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
