"""Epochs of training, whatever trains them: their results, and the loop over them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ...comm import Ranks
from ..common import InputError
from ..device import Tally
from .replicas import Exchanged
from .sizes import EpochSizes
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


@dataclasses.dataclass(frozen=True)
class StepResult:
    """A replica's share of a mini-batch that its chain's last device has finished."""

    epoch: int
    step: int
    tally: Tally
    virtual_time_ps: int


OnStep = Callable[[StepResult], None]
OnEpoch = Callable[[EpochResult, Weights], None]


class Trainer(Protocol):
    """This rank's part of what trains, an epoch at a time."""

    def epoch(self, number: int) -> EpochResult | None:
        """Train an epoch and evaluate; return the result on rank 0, else None."""

    def weights(self) -> Weights:
        """Return all layers' weights, on rank 0; for all ranks together."""

    def close(self) -> None:
        """End all communication."""


def train_epochs(
    trainer: Trainer, epochs: int, ranks: Ranks, on_epoch: OnEpoch, *, gather_weights: bool
) -> list[EpochResult]:
    """Train on all ranks together; return the history, on rank 0.

    Raises:
        InputError: the loss is no longer finite.
    """
    history = []
    ranks.running = ranks.size > 1
    try:
        for epoch in range(epochs):
            result = trainer.epoch(epoch)
            weights = trainer.weights() if gather_weights else {}
            if result is not None:
                history.append(result)
                with ranks.away():
                    on_epoch(result, weights)
    finally:
        ranks.on_object = lambda _: None
    ranks.running = False
    trainer.close()
    return history


class StepReports:
    """Adds up the mini-batches of an epoch that end on this rank, and reports each of them to rank 0.

    Raises:
        InputError: the loss of one is not finite.
    """

    def __init__(self, ranks: Ranks, epoch: int, learning_rate: float) -> None:
        self.total = Tally()
        self._ranks, self._epoch, self._rate = ranks, epoch, learning_rate

    def __call__(self, step: int, tally: Tally, virtual_time_ps: int) -> None:
        """Take a finished mini-batch."""
        if not math.isfinite(tally.loss):
            raise InputError(
                f"`learning_rate` = {self._rate:g}: training diverged, the loss is {tally.mean_loss}"
                f" in epoch {self._epoch + 1}, step {step + 1}; try a smaller one, such as {self._rate / 10:g}"
            )
        self.total += tally
        self._ranks.send_to_root(StepResult(self._epoch, step, tally, virtual_time_ps))
