"""Adam and AdamW, as in `torch.optim`: moving averages of gradients and of their squares."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from ..jit import Floats, compiled, in_place, same_shape
from .optimizer import Optimizer


def update(
    value: Floats,
    gradient: Floats,
    first: Floats,
    second: Floats,
    *,
    count: int,
    number: int,
    learning_rate: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    weight_decay: float,
    decoupled: bool,
) -> None:
    """Update `value` and both moments in place from `gradient`, the sum of the gradients of `count`
    samples.

        g = gradient / count + weight_decay * value
        first = first + (1 - beta1) * (g - first)
        second = beta2 * second + (1 - beta2) * g * g
        size = learning_rate / (1 - beta1^number)
        value = value - size * first / (sqrt(second) / sqrt(1 - beta2^number) + epsilon)

    `number` is that of the update, from 1. Where the decay is `decoupled` (AdamW), g has none of
    it, and the value is first multiplied by 1 - learning_rate * weight_decay. The arrays are
    C-contiguous and of one shape; `gradient` is not changed. Raise ValueError where they are not,
    or `count` or `number` is below 1.
    """
    same_shape(value, gradient, "values and their gradients")
    same_shape(value, first, "values and their first moments")
    same_shape(value, second, "values and their second moments")
    if count < 1 or number < 1:
        raise ValueError(
            f"updates are numbered from 1, and sum at least one sample, not {number} and {count}"
        )
    _update(
        in_place(value, "value").reshape(-1),
        in_place(gradient, "gradient").reshape(-1),
        in_place(first, "first").reshape(-1),
        in_place(second, "second").reshape(-1),
        np.float32(1 / count),
        np.float32(0 if decoupled else weight_decay),
        np.float32(1 - learning_rate * weight_decay if decoupled else 1),
        np.float32(1 - beta1),
        np.float32(beta2),
        np.float32(1 - beta2),
        np.float32(learning_rate / (1 - beta1**number)),
        np.float32(math.sqrt(1 - beta2**number)),
        np.float32(epsilon),
    )


def warm() -> None:
    """Compile all kernels: call each once on tiny arrays, as training calls it."""
    b = np.ones(2, np.float32)
    keys = {
        "learning_rate": 0.1,
        "beta1": 0.9,
        "beta2": 0.999,
        "epsilon": 1e-8,
        "weight_decay": 1e-4,
    }
    update(b, b.copy(), b.copy(), b.copy(), count=1, number=1, decoupled=False, **keys)


@compiled
def _update(
    value: Any,
    gradient: Any,
    first: Any,
    second: Any,
    share: Any,
    decay: Any,
    shrink: Any,
    new1: Any,
    old2: Any,
    new2: Any,
    size: Any,
    root: Any,
    epsilon: Any,
) -> None:
    for i in range(value.size):
        mean = gradient[i] * share + decay * value[i]
        first[i] += new1 * (mean - first[i])
        second[i] = old2 * second[i] + new2 * (mean * mean)
        # The order of torch.optim: the root is corrected before epsilon is added.
        value[i] = shrink * value[i] - size * (first[i] / (np.sqrt(second[i]) / root + epsilon))


@dataclasses.dataclass(frozen=True)
class Adam(Optimizer):
    """Adam, whose weight decay is part of the gradient."""

    name = "adam"
    states = ("first_moment", "second_moment")
    states_beside_lgb = 2
    decoupled: ClassVar[bool] = False

    beta1: float
    beta2: float
    epsilon: float

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
        update(
            *(value, gradient, states["first_moment"], states["second_moment"]),
            count=count,
            number=number,
            learning_rate=self.learning_rate,
            beta1=self.beta1,
            beta2=self.beta2,
            epsilon=self.epsilon,
            weight_decay=self.weight_decay,
            decoupled=self.decoupled,
        )


@dataclasses.dataclass(frozen=True)
class AdamW(Adam):
    """Adam, whose weight decay is decoupled from the gradient."""

    name = "adamw"
    decoupled = True
