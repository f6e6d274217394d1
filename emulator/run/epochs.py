"""Epochs of training, whatever trains them: their results, and the loop over them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ...comm import Ranks
from ..device import Tally
from .replicas import Exchanged
from .sizes import EpochSizes
from .steps import StepResult, StepTable
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
    a pair, or of a GPU alone. `learning_rate` is that of its last mini-batch; `steps` has all of them.
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
    steps: StepTable = dataclasses.field(default_factory=StepTable, repr=False, compare=False)


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
                on_epoch(result, weights)
    finally:
        ranks.on_object = lambda _: None
    ranks.running = False
    trainer.close()
    return history
