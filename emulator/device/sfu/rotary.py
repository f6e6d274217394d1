"""The unit of rotary positions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....kernels.layers.rotary import rotate, turns
from ...network import SfuStep
from ...network.operations.rotary import Rotary
from .unit import Data, Site, State, Training, Unit


class RotaryUnit(Unit):
    """Pairs of channels turned by angles of the row; errors are turned back."""

    operation = Rotary
    overwrites = True

    def __init__(self, step: SfuStep, site: Site) -> None:
        super().__init__(step, site)
        own = step.operation
        assert isinstance(own, Rotary)
        self._cosines, self._sines = turns(step.input[1], own.size(step.input), own.base)
        self._parts, self._interleaved = own.parts, own.interleaved

    def forward(self, xs: Sequence[Data], version: int, training: Training | None) -> tuple[Data, State]:
        """See `Unit`."""
        [x] = xs
        self._turn(x, 1)
        return x, ()

    def backward(self, state: State, dz: Data, version: int) -> Sequence[Data]:
        """See `Unit`."""
        self._turn(dz, -1)
        return (dz,)

    def _turn(self, maps: Data, way: int) -> None:
        parts, rotated = self._parts
        sines = self._sines * np.float32(way)
        rotate(maps, maps, self._cosines, sines, parts=parts, rotated=rotated, interleaved=self._interleaved)
