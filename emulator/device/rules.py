"""Update rules: the optimiser of a mini-batch with its learning rate, and what is done to weights
after it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...kernels.codec import Codec
from ...kernels.optimizers import Optimizer
from ..config import learning_rate, optimizer_of

if TYPE_CHECKING:
    from ..config import Config, Settings

Data = NDArray[np.float32]


@dataclasses.dataclass(frozen=True)
class Rule:
    """The update of one mini-batch, the same for all parameters.

    `number` is that of the update since the start of training, from 1. `rounding` is a codec
    applied to the weights after each update, so that its errors accumulate (INCEPTIONN, Fig. 4).
    Errors are `loss_scale` times too large, and so are sums of gradients; those that are
    `exchanged` have been rounded to their format. Gradients are multiplied by `factor` first, so
    that the norm of all of them is at most `clip_norm`, if that is given. An update `is_skipped`
    where a gradient has overflowed.
    """

    optimizer: Optimizer
    number: int = 1
    rounding: Codec | None = None
    loss_scale: int = 1
    exchanged: bool = False
    clip_norm: float | None = None
    factor: float = 1.0
    is_skipped: bool = False

    @property
    def states(self) -> tuple[str, ...]:
        """Names of the arrays that are kept from update to update, each of the parameter's size and
        zero at first.
        """
        return self.optimizer.states

    def update(self, value: Data, gradient: Data, states: Mapping[str, Data], samples: int) -> None:
        """Change a parameter and its `states` in place, from the sum of the gradients of `samples`
        samples.
        """
        self.optimizer.update(
            value, gradient, states, count=samples * self.loss_scale, number=self.number
        )


@dataclasses.dataclass(frozen=True)
class Rules:
    """The rules of an epoch's mini-batches, by their number in it; each epoch has `epoch_steps` of
    them.
    """

    config: Config | Settings
    epoch: int
    epoch_steps: int

    @property
    def last_rate(self) -> float:
        """The learning rate of the last mini-batch."""
        return self.rate(self.epoch_steps - 1)

    def rate(self, step: int) -> float:
        """Return the learning rate of a mini-batch."""
        return learning_rate(self.config, self._number(step), self.epoch_steps)

    def of_leg(self, first: int) -> RuleOf:
        """Return the rules of the mini-batches from number `first` on, by their number after
        that.
        """
        return lambda step: self(first + step)

    def _number(self, step: int) -> int:
        """Return the number of a mini-batch since the start of training."""
        return self.epoch * self.epoch_steps + step

    def __call__(self, step: int) -> Rule:
        """Return the rule of a mini-batch."""
        codec = self.config.compress_weights
        optimizer = optimizer_of(self.config, self.rate(step))
        number, loss_scale = self._number(step) + 1, self.config.precision.loss_scale
        rounding = codec if codec.compresses else None
        return Rule(optimizer, number, rounding, loss_scale, clip_norm=self.config.clip_norm)


RuleOf = Callable[[int], Rule]
"""The rule of a mini-batch of an epoch, by its number from 0."""
