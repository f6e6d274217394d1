"""Parameters with what SGD needs beside them: the gradients' sum (LGB) and the velocity."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from ...kernels.arena import aligned
from ...kernels.codec.codec import Codec
from ...kernels.layers import sgd


@dataclasses.dataclass(frozen=True)
class Sgd:
    """Stochastic gradient descent with momentum and weight decay, at one learning rate.

    `rounding` is a codec that weights go through after each update, so that what it loses adds up (INCEPTIONN, Fig. 4).
    """

    learning_rate: float
    momentum: float
    weight_decay: float
    rounding: Codec | None = None


class Parameter:
    """An array of parameters, the sum of its gradients since the last update, and its velocity."""

    def __init__(self, value: NDArray[np.float32]) -> None:
        self.value = value
        self.gradient = _zeros_like(value)
        self._velocity = _zeros_like(value)
        self._is_summed = False

    def begins_sum(self) -> bool:
        """Whether the gradient that is added next is the first since the update; what stands there is then void."""
        begins, self._is_summed = not self._is_summed, True
        return begins

    def update(self, samples: int, rule: Sgd) -> None:
        """Average the gradients over a mini-batch's samples, update, and begin a new sum (FPDeep, section 5.2.2)."""
        if self.begins_sum():
            self.gradient[...] = 0
        sgd.update(
            self.value,
            self.gradient,
            self._velocity,
            count=samples,
            learning_rate=rule.learning_rate,
            momentum=rule.momentum,
            weight_decay=rule.weight_decay,
        )
        if rule.rounding is not None:
            flat = self.value.reshape(-1)
            flat[...] = rule.rounding.decompress(rule.rounding.compress(flat), flat.size)
        self._is_summed = False


def _zeros_like(value: NDArray[np.float32]) -> NDArray[np.float32]:
    zeros = aligned(value.nbytes).view(np.float32).reshape(value.shape)
    zeros[...] = 0
    return zeros
