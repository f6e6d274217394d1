"""ReLU."""

from __future__ import annotations

from collections.abc import Sequence

from ....kernels.layers import relu
from ...network.operations.relu import Relu
from .unit import Data, State, Training, Unit


class ReluUnit(Unit):
    """ReLU in place.

    An LRN before it may keep these maps: it multiplies them by errors, which are set to 0 where the maps are.
    """

    operation = Relu
    overwrites = True

    def forward(self, xs: Sequence[Data], version: int, training: Training | None) -> tuple[Data, State]:
        """See `Unit`."""
        [x] = xs
        relu.forward(x)
        return x, (x,)

    def backward(self, state: State, dz: Data, version: int) -> Sequence[Data]:
        """See `Unit`."""
        relu.error(state[0], dz)
        return (dz,)
