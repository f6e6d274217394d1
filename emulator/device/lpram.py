"""LPRAM and LGB: a device's own parameters, and the sums of their gradients (FPDeep, section 5.2.2)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...kernels.codec import Codec
from ...kernels.layers import sgd
from .versions import Arrays, Versions, zeros_like

Data = NDArray[np.float32]


@dataclasses.dataclass(frozen=True)
class Sgd:
    """Stochastic gradient descent with momentum and weight decay, at one learning rate.

    `rounding` is a codec applied to the weights after each update, so that its errors accumulate (INCEPTIONN, Fig. 4).
    """

    learning_rate: float
    momentum: float
    weight_decay: float
    rounding: Codec | None = None


class Parameter:
    """An array of parameters by version, the sum of its gradients since the last update (LGB), and its velocity."""

    def __init__(self, value: Data) -> None:
        self.versions = Versions(value)
        self.gradient = zeros_like(value)
        self._velocity = zeros_like(value)
        self._is_summed = False

    def __getitem__(self, version: int) -> Data:
        return self.versions[version]

    @property
    def newest(self) -> Data:
        """Value after the last update."""
        return self.versions.newest

    def begins_sum(self) -> bool:
        """Return whether the next gradient is the first since the update; the buffer's content is then invalid."""
        begins, self._is_summed = not self._is_summed, True
        return begins

    def update(self, samples: int, rule: Sgd, *, keeps: bool) -> None:
        """Make the next version from the mean of the gradients over `samples` (FPDeep, section 5.2.2)."""
        if self.begins_sum():
            self.gradient[...] = 0
        value = self.versions.advance(keeps=keeps)
        sgd.update(
            value,
            self.gradient,
            self._velocity,
            count=samples,
            learning_rate=rule.learning_rate,
            momentum=rule.momentum,
            weight_decay=rule.weight_decay,
        )
        if rule.rounding is not None:
            flat = value.reshape(-1)
            flat[...] = rule.rounding.decompress(rule.rounding.compress(flat), flat.size)
        self._is_summed = False

    def free(self, versions: Sequence[int]) -> None:
        """Drop versions after their last use."""
        self.versions.free(versions)

    def begin_epoch(self) -> None:
        """Renumber the versions: the newest becomes 0."""
        self.versions.begin_epoch()

    def state(self) -> Arrays:
        """Return the training state, copied: value and velocity; call only when there is one version."""
        return {**self.versions.state(), "velocity": self._velocity.copy()}

    def restore(self, state: Arrays) -> None:
        """Restore what `state` returned."""
        self.versions.restore(state)
        self._velocity[...] = state["velocity"]
