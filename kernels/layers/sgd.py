"""Stochastic gradient descent with momentum and weight decay, as `torch.optim.SGD`."""

from typing import Any

import numpy as np

from ..jit.arrays import Floats, in_place, same_shape
from ..jit.compiled import compiled


def update(
    value: Floats,
    gradient: Floats,
    velocity: Floats,
    *,
    count: int,
    learning_rate: float,
    momentum: float,
    weight_decay: float,
) -> None:
    """Update value and velocity in place from the gradient, which is the sum of those of `count` samples.

        g = gradient / count + weight_decay * value
        velocity = momentum * velocity + g
        value = value - learning_rate * velocity

    The arrays are C-contiguous, all of one shape, whatever it is; the gradient stays as it is. Raise ValueError
    where they are not, or count is below 1.
    """
    same_shape(value, gradient, "values and their gradients")
    same_shape(value, velocity, "values and their velocities")
    if count < 1:
        raise ValueError(f"a gradient sums at least one sample, not {count}")
    _update(
        in_place(value, "value").reshape(-1),
        in_place(gradient, "gradient").reshape(-1),
        in_place(velocity, "velocity").reshape(-1),
        np.float32(1 / count),
        np.float32(learning_rate),
        np.float32(momentum),
        np.float32(weight_decay),
    )


@compiled
def _update(
    value: Any, gradient: Any, velocity: Any, share: Any, learning_rate: Any, momentum: Any, decay: Any
) -> None:
    for i in range(value.size):
        velocity[i] = momentum * velocity[i] + (gradient[i] * share + decay * value[i])
        value[i] -= learning_rate * velocity[i]
