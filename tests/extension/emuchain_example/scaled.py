"""An operation of an SFU, its kernel and its unit: maps times a constant; `type = "scaled"` in a
network's file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from emuchain.emulator.network import SfuOperation, SfuStep, Shape, Site, Training, Unit
from emuchain.emulator.network.unit import Data, Inputs, Made, State, Weights
from emuchain.kernels.jit import Floats, compiled, target


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scaled(SfuOperation):
    """Maps times `factor`."""

    factor: float = 2.0

    type = "scaled"

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        return inputs[0]

    def unit(self, step: SfuStep, site: Site) -> Unit:
        """See `SfuOperation`."""
        return ScaledUnit(self.factor, site)


@compiled
def _scale(x: Any, extent: Any, factor: Any) -> None:
    n, rows, columns, channels, pitch = extent
    for pixel in range(n * rows * columns):
        for c in range(channels):
            x[pixel * pitch + c] *= factor


def scale(x: Floats, factor: float) -> None:
    """Multiply maps (samples, rows, columns, channels) by a factor, in place."""
    _scale(*target(x, "x"), np.float32(factor))


class ScaledUnit(Unit):
    """Maps times a constant."""

    def __init__(self, factor: float, site: Site) -> None:
        super().__init__(site)
        self._factor = factor

    def forward(self, xs: Inputs, weights: Weights, training: Training | None) -> Made:
        """See `Unit`."""
        [x] = xs
        scale(x, self._factor)
        return x, ()

    def backward(self, state: State, dz: Data, weights: Weights) -> Inputs:
        """See `Unit`."""
        scale(dz, self._factor)
        return (dz,)
