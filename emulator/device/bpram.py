"""BPRAM and BGB: parameters that a device stores for another one, and the sums of their gradients (FPDeep, Fig. 6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ...kernels import Arena
from ..mapping import BalancedParameters
from .lpram import Parameter
from .rules import Rule
from .slice_numerics import State
from .start import initial_weights
from .versions import Versions

Data = NDArray[np.float32]


class Bpram:
    """One block of balanced parameters on the device that stores it; values are sent as maps (1, 1, 1, values)."""

    def __init__(self, block: BalancedParameters, start: Literal["he", "xavier"], seed: int, arena: Arena) -> None:
        self.part = part = block.part
        self._parameter = Parameter(
            initial_weights(block.layer, start, seed, part.weight_inputs, part.out_channels), arena
        )

    def update(self, gradient: Data, samples: int, rule: Rule) -> Data:
        """Update from the sum of gradients over `samples` samples; return the new weights, (1, 1, 1, values)."""
        parameter = self._parameter
        parameter.begins_sum()
        parameter.gradient[...] = gradient.reshape(parameter.gradient.shape)
        parameter.update(samples, rule, keeps=False)
        return parameter.newest.reshape(1, 1, 1, -1)

    def begin_epoch(self) -> None:
        """Renumber the versions: the newest becomes 0."""
        self._parameter.begin_epoch()

    @property
    def averages(self) -> Mapping[str, Versions]:
        """None: averages belong to the SFU."""
        return {}

    def state(self) -> State:
        """Return what training keeps, copied: of weights (output channels, input channels, kh, kw)."""
        return {"weight": self._parameter.state()}

    def restore(self, state: State) -> None:
        """Restore what `state` returned."""
        self._parameter.restore(state["weight"])
