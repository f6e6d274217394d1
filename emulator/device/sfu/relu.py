"""ReLU."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....kernels.layers import relu
from ...network.operations.relu import Relu
from .unit import Data, State, Training, Unit


class ReluUnit(Unit):
    """ReLU in place; where its results are above 0 is kept, in a byte each.

    An LRN before it may keep these maps: it multiplies them by errors, which are set to 0 where the maps are.
    """

    operation = Relu
    overwrites = True

    def forward(self, xs: Sequence[Data], version: int, training: Training | None) -> tuple[Data, State]:
        """See `Unit`."""
        [x] = xs
        relu.forward(x)
        return x, self._marks(x)

    def _marks(self, y: Data) -> State:
        """Return the state that belongs to results `y`."""
        marks = self.arena.take(y.shape, np.uint8)
        relu.mark(y, marks)
        return (marks,)

    def backward(self, state: State, dz: Data, version: int) -> Sequence[Data]:
        """See `Unit`."""
        relu.marked_error(state[0], dz)
        return (dz,)
