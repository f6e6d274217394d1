"""Leaky ReLU."""

from __future__ import annotations

from ....kernels.layers import leaky_relu
from ...network import SfuStep
from ...network.operations.leaky_relu import LeakyRelu
from .element_wise import ElementWise
from .unit import Data, Site


class LeakyReluUnit(ElementWise):
    """x where it is above 0, else `slope` times x."""

    operation = LeakyRelu

    def __init__(self, step: SfuStep, site: Site) -> None:
        super().__init__(step, site)
        assert isinstance(step.operation, LeakyRelu)
        self._slope = step.operation.slope

    def apply(self, x: Data, y: Data, /) -> None:
        """See `ElementWise`."""
        leaky_relu.forward(x, y, slope=self._slope)

    def error(self, kept: Data, dy: Data, /) -> None:
        """See `ElementWise`."""
        leaky_relu.error(kept, dy, slope=self._slope)
