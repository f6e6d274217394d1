"""Leaky ReLU."""

from __future__ import annotations

from collections.abc import Sequence

from ....kernels.layers import leaky_relu
from ...network import SfuStep
from ...network.operations.leaky_relu import LeakyRelu
from .unit import Data, Site, State, Training, Unit


class LeakyReluUnit(Unit):
    """x where it is above 0, else `slope` times x."""

    operation = LeakyRelu

    def __init__(self, step: SfuStep, site: Site) -> None:
        super().__init__(step, site)
        assert isinstance(step.operation, LeakyRelu)
        self._slope = step.operation.slope

    def forward(self, xs: Sequence[Data], version: int, training: Training | None) -> tuple[Data, State]:
        """See `Unit`."""
        [x] = xs
        y = self.arena.take(x.shape)
        leaky_relu.forward(x, y, slope=self._slope)
        return y, (x,)

    def backward(self, state: State, dz: Data, version: int) -> Sequence[Data]:
        """See `Unit`."""
        leaky_relu.error(state[0], dz, slope=self._slope)
        return (dz,)
