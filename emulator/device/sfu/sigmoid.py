"""Sigmoid, and its form of straight lines."""

from __future__ import annotations

from collections.abc import Sequence

from ....kernels.layers import sigmoid
from ...network.operations.sigmoid import HardSigmoid, Sigmoid
from .element_wise import ElementWise
from .unit import Data, State, Training


class SigmoidUnit(ElementWise):
    """1 / (1 + exp(-x)); its results are kept for the way back."""

    operation = Sigmoid
    apply = staticmethod(sigmoid.forward)
    error = staticmethod(sigmoid.error)

    def forward(self, xs: Sequence[Data], version: int, training: Training | None) -> tuple[Data, State]:
        """See `Unit`."""
        y, _ = super().forward(xs, version, training)
        return y, (y,)


class HardSigmoidUnit(ElementWise):
    """(x + 3) / 6, at least 0 and at most 1."""

    operation = HardSigmoid
    apply = staticmethod(sigmoid.hard_forward)
    error = staticmethod(sigmoid.hard_error)
