"""Sigmoid, and its form of straight lines."""

from __future__ import annotations

from collections.abc import Sequence

from ....kernels.layers import sigmoid
from ...network.operations.sigmoid import HardSigmoid, Sigmoid
from .unit import Data, State, Training, Unit


class SigmoidUnit(Unit):
    """1 / (1 + exp(-x)); its results are kept for the way back."""

    operation = Sigmoid

    def forward(self, xs: Sequence[Data], version: int, training: Training | None) -> tuple[Data, State]:
        """See `Unit`."""
        [x] = xs
        y = self.arena.take(x.shape)
        sigmoid.forward(x, y)
        return y, (y,)

    def backward(self, state: State, dz: Data, version: int) -> Sequence[Data]:
        """See `Unit`."""
        sigmoid.error(state[0], dz)
        return (dz,)


class HardSigmoidUnit(Unit):
    """(x + 3) / 6, at least 0 and at most 1."""

    operation = HardSigmoid

    def forward(self, xs: Sequence[Data], version: int, training: Training | None) -> tuple[Data, State]:
        """See `Unit`."""
        [x] = xs
        y = self.arena.take(x.shape)
        sigmoid.hard_forward(x, y)
        return y, (x,)

    def backward(self, state: State, dz: Data, version: int) -> Sequence[Data]:
        """See `Unit`."""
        sigmoid.hard_error(state[0], dz)
        return (dz,)
