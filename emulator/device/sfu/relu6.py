"""ReLU with a limit of 6."""

from __future__ import annotations

from collections.abc import Sequence

from ....kernels.layers import relu6
from ...network.operations.relu6 import Relu6
from .unit import Data, State, Training, Unit


class Relu6Unit(Unit):
    """ReLU6 in place; an LRN before it may keep these maps, as before a ReLU."""

    operation = Relu6
    overwrites = True

    def forward(self, xs: Sequence[Data], version: int, training: Training | None) -> tuple[Data, State]:
        """See `Unit`."""
        [x] = xs
        relu6.forward(x)
        return x, (x,)

    def backward(self, state: State, dz: Data, version: int) -> Sequence[Data]:
        """See `Unit`."""
        relu6.error(state[0], dz)
        return (dz,)
