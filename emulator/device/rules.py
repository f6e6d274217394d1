"""Update rules: how a mini-batch's gradients change parameters; each keeps arrays of its own for every parameter."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from ...kernels.codec import Codec
from ...kernels.layers import adam, nesterov, sgd
from ..config import STATES, learning_rate

if TYPE_CHECKING:
    from ..config import Config, Settings

Data = NDArray[np.float32]


@dataclasses.dataclass(frozen=True)
class Rule(abc.ABC):
    """The update of one mini-batch, the same for all parameters."""

    states: ClassVar[tuple[str, ...]]
    """Names of the arrays that are kept from update to update, each of the parameter's size and zero at first."""

    @property
    @abc.abstractmethod
    def rounding(self) -> Codec | None:
        """A codec applied to the weights after each update, so that its errors accumulate (INCEPTIONN, Fig. 4)."""

    @abc.abstractmethod
    def update(self, value: Data, gradient: Data, states: Mapping[str, Data], samples: int) -> None:
        """Change a parameter and its `states` in place, from the sum of the gradients of `samples` samples."""


@dataclasses.dataclass(frozen=True)
class Sgd(Rule):
    """Stochastic gradient descent with momentum and weight decay."""

    states = STATES["sgd"]
    kernel: ClassVar[sgd.MomentumUpdate] = sgd.update

    learning_rate: float
    momentum: float
    weight_decay: float
    rounding: Codec | None = None

    def update(self, value: Data, gradient: Data, states: Mapping[str, Data], samples: int) -> None:
        """See `Rule`."""
        self.kernel(
            value,
            gradient,
            states["velocity"],
            count=samples,
            learning_rate=self.learning_rate,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
        )


@dataclasses.dataclass(frozen=True)
class Nesterov(Sgd):
    """The same with Nesterov's momentum."""

    states = STATES["nesterov"]
    kernel = nesterov.update


@dataclasses.dataclass(frozen=True)
class Adam(Rule):
    """Adam; `number` is that of the update since the start of training, from 1. AdamW's decay is `decoupled`."""

    states = STATES["adam"]

    learning_rate: float
    beta1: float
    beta2: float
    epsilon: float
    weight_decay: float
    number: int
    decoupled: bool = False
    rounding: Codec | None = None

    def update(self, value: Data, gradient: Data, states: Mapping[str, Data], samples: int) -> None:
        """See `Rule`."""
        adam.update(
            value,
            gradient,
            states["first_moment"],
            states["second_moment"],
            count=samples,
            number=self.number,
            learning_rate=self.learning_rate,
            beta1=self.beta1,
            beta2=self.beta2,
            epsilon=self.epsilon,
            weight_decay=self.weight_decay,
            decoupled=self.decoupled,
        )


@dataclasses.dataclass(frozen=True)
class Rules:
    """The rules of an epoch's mini-batches, by their number in it; each epoch has `epoch_steps` of them."""

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
        """Return the rules of the mini-batches from number `first` on, by their number after that."""
        return lambda step: self(first + step)

    def _number(self, step: int) -> int:
        """Return the number of a mini-batch since the start of training."""
        return self.epoch * self.epoch_steps + step

    def __call__(self, step: int) -> Rule:
        """Return the rule of a mini-batch."""
        config, rate = self.config, self.rate(step)
        rounding = config.compress_weights if config.compress_weights.compresses else None
        if config.optimizer in ("adam", "adamw"):
            betas = config.beta1, config.beta2, config.epsilon
            decoupled = config.optimizer == "adamw"
            return Adam(rate, *betas, config.weight_decay, self._number(step) + 1, decoupled, rounding)
        kind = Nesterov if config.optimizer == "nesterov" else Sgd
        return kind(rate, config.momentum, config.weight_decay, rounding)


RuleOf = Callable[[int], Rule]
"""The rule of a mini-batch of an epoch, by its number from 0."""
