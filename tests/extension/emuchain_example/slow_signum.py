"""An optimiser with a key of its own: `--optimizer slow-signum:beta3=0.99`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from emuchain.kernels.jit import Floats, compiled, in_place
from emuchain.kernels.optimizers import Optimizer


@compiled
def _update(
    value: Any, gradient: Any, slow: Any, share: Any, learning_rate: Any, beta3: Any
) -> None:
    for i in range(value.size):
        slow[i] = beta3 * slow[i] + (np.float32(1) - beta3) * gradient[i] * share
        value[i] -= learning_rate * np.sign(slow[i])


@dataclasses.dataclass(frozen=True)
class SlowSignum(Optimizer):
    """Steps of one size, in the direction of a slow mean of gradients."""

    name: ClassVar[str] = "slow-signum"
    states: ClassVar[tuple[str, ...]] = ("slow",)
    states_beside_lgb: ClassVar[int] = 1

    beta3: float = 0.9

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
        _update(
            in_place(value, "value").reshape(-1),
            in_place(gradient, "gradient").reshape(-1),
            in_place(states["slow"], "slow").reshape(-1),
            np.float32(1 / count),
            np.float32(self.learning_rate),
            np.float32(self.beta3),
        )
