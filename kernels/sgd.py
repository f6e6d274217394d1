"""Stochastic gradient descent with momentum and weight decay, as `torch.optim.SGD`."""

from typing import Any

import numpy as np
from numba import njit

from .arrays import Floats, in_place, same_shape


def update(
    w: Floats,
    gradient: Floats,
    velocity: Floats,
    *,
    count: int,
    learning_rate: float,
    momentum: float,
    weight_decay: float,
) -> None:
    """Update w and velocity in place from the sum of the gradients of `count` samples, and set gradient to zero.

        g = gradient / count + weight_decay * w
        velocity = momentum * velocity + g
        w = w - learning_rate * velocity

    Each array is C-contiguous, all of one shape. Raise ValueError where they are not, or count is below 1.
    """
    same_shape(w, gradient, "weights and their gradients")
    same_shape(w, velocity, "weights and their velocities")
    if count < 1:
        raise ValueError(f"a gradient sums at least one sample, not {count}")
    _update(
        in_place(w, "w").reshape(-1),
        in_place(gradient, "gradient").reshape(-1),
        in_place(velocity, "velocity").reshape(-1),
        np.float32(1 / count),
        np.float32(learning_rate),
        np.float32(momentum),
        np.float32(weight_decay),
    )


@njit(cache=True, nogil=True)
def _update(w: Any, gradient: Any, velocity: Any, share: Any, learning_rate: Any, momentum: Any, decay: Any) -> None:
    for i in range(w.size):
        velocity[i] = momentum * velocity[i] + (gradient[i] * share + decay * w[i])
        w[i] -= learning_rate * velocity[i]
        gradient[i] = 0
