"""Stochastic gradient descent with momentum and weight decay, as in `torch.optim.SGD`.

An update, from the sum of the gradients of `count` samples:

    g = gradient / count + weight_decay * value
    velocity = momentum * velocity + g
    value = value - learning_rate * velocity
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from ..jit import Floats, Kernel, compiled, in_place, same_shape
from .optimizer import Optimizer


@dataclasses.dataclass(frozen=True)
class MomentumUpdate:
    """An update by a velocity; `kernel` has the arithmetic of one form of momentum."""

    kernel: Kernel

    def __call__(
        self,
        value: Floats,
        gradient: Floats,
        velocity: Floats,
        *,
        count: int,
        learning_rate: float,
        momentum: float,
        weight_decay: float,
    ) -> None:
        """Update `value` and `velocity` in place from `gradient`, the sum of the gradients of
        `count` samples.

        The arrays are C-contiguous and of one shape; `gradient` is not changed. Raise ValueError
        where they are not, or `count` is below 1.
        """
        same_shape(value, gradient, "values and their gradients")
        same_shape(value, velocity, "values and their velocities")
        if count < 1:
            raise ValueError(f"a gradient sums at least one sample, not {count}")
        self.kernel(
            in_place(value, "value").reshape(-1),
            in_place(gradient, "gradient").reshape(-1),
            in_place(velocity, "velocity").reshape(-1),
            np.float32(1 / count),
            np.float32(learning_rate),
            np.float32(momentum),
            np.float32(weight_decay),
        )

    def warm(self) -> None:
        """Compile the kernel: call it once on tiny arrays, as training calls it."""
        b = np.ones(2, np.float32)
        self(b, b, b, count=1, learning_rate=0.1, momentum=0.9, weight_decay=1e-4)


@compiled
def _update(
    value: Any,
    gradient: Any,
    velocity: Any,
    share: Any,
    learning_rate: Any,
    momentum: Any,
    decay: Any,
) -> None:
    for i in range(value.size):
        velocity[i] = momentum * velocity[i] + (gradient[i] * share + decay * value[i])
        value[i] -= learning_rate * velocity[i]


update = MomentumUpdate(_update)
warm = update.warm


@dataclasses.dataclass(frozen=True)
class Sgd(Optimizer):
    """Stochastic gradient descent with momentum; `kernel` has the arithmetic of its form."""

    name = "sgd"
    states = ("velocity",)
    states_beside_lgb = (
        0  # LGB starts each sum of gradients at momentum times the velocity, so it holds both
    )
    kernel: ClassVar[MomentumUpdate] = update

    momentum: float

    def update(
        self,
        value: Floats,
        gradient: Floats,
        states: Mapping[str, Floats],
        *,
        count: int,
        number: int,
    ) -> None:
        """See `Optimizer`."""
        self.kernel(
            *(value, gradient, states["velocity"]),
            count=count,
            learning_rate=self.learning_rate,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
        )
