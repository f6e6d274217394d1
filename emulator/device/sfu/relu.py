"""ReLU."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

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
        y = self.infer(xs, version, None)
        marks = self.arena.take(y.shape, np.uint8)
        relu.mark(y, marks)
        return y, (marks,)

    def infer(self, xs: Sequence[Data], version: int, lengths: NDArray[np.int64] | None) -> Data:
        """See `Unit`."""
        [x] = xs
        relu.forward(x)
        return x

    def backward(self, state: State, dz: Data, version: int) -> Sequence[Data]:
        """See `Unit`."""
        relu.marked_error(state[0], dz)
        return (dz,)
