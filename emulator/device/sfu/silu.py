"""SiLU, and its form of straight lines."""

from __future__ import annotations

from collections.abc import Sequence

from ....kernels.layers import silu
from ...network.operations.silu import HardSwish, Silu
from .element_wise import ElementWise
from .unit import Data, State, Training, Unit


class SiluUnit(Unit):
    """x times sigmoid(x); both are kept for the way back."""

    operation = Silu

    def forward(self, xs: Sequence[Data], version: int, training: Training | None) -> tuple[Data, State]:
        """See `Unit`."""
        [x] = xs
        gate, y = self.arena.take(x.shape), self.arena.take(x.shape)
        silu.forward(x, gate, y)
        return y, (x, gate)

    def backward(self, state: State, dz: Data, version: int) -> Sequence[Data]:
        """See `Unit`."""
        x, gate = state
        silu.error(x, gate, dz)
        return (dz,)


class HardSwishUnit(ElementWise):
    """x times hard-sigmoid(x)."""

    operation = HardSwish
    apply = staticmethod(silu.hard_forward)
    error = staticmethod(silu.hard_error)
