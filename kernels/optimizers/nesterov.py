"""Stochastic gradient descent with Nesterov's momentum, as in `torch.optim.SGD` with
`nesterov=True`.

An update, from the sum of the gradients of `count` samples:

    g = gradient / count + weight_decay * value
    velocity = momentum * velocity + g
    value = value - learning_rate * (g + momentum * velocity)
"""

import dataclasses
from typing import Any

from ..jit import compiled
from .sgd import MomentumUpdate, Sgd


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
        mean = gradient[i] * share + decay * value[i]
        velocity[i] = momentum * velocity[i] + mean
        value[i] -= learning_rate * (mean + momentum * velocity[i])


update = MomentumUpdate(_update)
warm = update.warm


@dataclasses.dataclass(frozen=True)
class Nesterov(Sgd):
    """The same with Nesterov's momentum: the value needs the velocity at the update."""

    name = "nesterov"
    states_beside_lgb = 1
    kernel = update

    @property
    def problem(self) -> str | None:
        """See `Optimizer`."""
        if self.momentum:
            return None
        return (
            "`momentum` = 0: `optimizer` = 'nesterov' looks ahead by it; should be above 0, such"
            " as 0.9"
        )
