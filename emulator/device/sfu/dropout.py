"""Dropout."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....kernels.layers import dropout
from ...network import SfuStep
from ...network.operations.dropout import Dropout
from .unit import Data, Site, State, Training, Unit


class DropoutUnit(Unit):
    """Dropout in training; in evaluation maps pass unchanged."""

    operation = Dropout
    overwrites = True

    def __init__(self, step: SfuStep, site: Site) -> None:
        super().__init__(step, site)
        assert isinstance(step.operation, Dropout)
        self._rate, self._seed, self._layer = step.operation.rate, site.seed, site.layer

    def forward(self, xs: Sequence[Data], version: int, training: Training | None) -> tuple[Data, State]:
        """See `Unit`."""
        [x] = xs
        if training is None:
            return x, ()
        mask, y = self.arena.take(x.shape), self.arena.take(x.shape)
        dropout.mask(mask, rate=self._rate, seed=self._seed, layer=self._layer, samples=training.samples)
        np.multiply(x, mask, out=y)
        return y, (mask,)

    def backward(self, state: State, dz: Data, version: int) -> Sequence[Data]:
        """See `Unit`."""
        dz *= state[0]
        return (dz,)
