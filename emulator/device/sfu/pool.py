"""Pooling over windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....kernels.layers import pool
from ...network import SfuStep
from ...network.operations.pool import AveragePool, MaxPool
from .unit import Data, Site, State, Training, Unit


class _PoolUnit(Unit):
    """Base class of pooling units."""

    def __init__(self, step: SfuStep, site: Site) -> None:
        super().__init__(step, site)
        of = step.operation
        assert isinstance(of, (MaxPool, AveragePool))
        self._window: dict[str, Any] = {"kernel": of.kernel, "stride": of.step, "pad": of.pad}
        channels, *size = step.input
        self._input = (*size, channels)
        channels, *size = step.output
        self._output = (*size, channels)


class MaxPoolUnit(_PoolUnit):
    """The maximum of each window, and its position for the backward pass."""

    operation = MaxPool

    def forward(self, xs: Sequence[Data], version: int, training: Training | None) -> tuple[Data, State]:
        """See `Unit`."""
        [x] = xs
        shape = (len(x), *self._output)
        y, places = self.arena.take(shape), self.arena.take(shape, np.uint8)
        pool.max_forward(x, y, places, **self._window)
        return y, (places,)

    def backward(self, state: State, dz: Data, version: int) -> Sequence[Data]:
        """See `Unit`."""
        dx = self.arena.take((len(dz), *self._input))
        pool.max_error(dz, state[0], dx, **self._window)
        return (dx,)


class AveragePoolUnit(_PoolUnit):
    """The average of each window."""

    operation = AveragePool

    def __init__(self, step: SfuStep, site: Site) -> None:
        super().__init__(step, site)
        assert isinstance(step.operation, AveragePool)
        self._window["count_include_pad"] = step.operation.count_include_pad

    def forward(self, xs: Sequence[Data], version: int, training: Training | None) -> tuple[Data, State]:
        """See `Unit`."""
        [x] = xs
        y = self.arena.take((len(x), *self._output))
        pool.average_forward(x, y, **self._window)
        return y, ()

    def backward(self, state: State, dz: Data, version: int) -> Sequence[Data]:
        """See `Unit`."""
        dx = self.arena.take((len(dz), *self._input))
        pool.average_error(dz, dx, **self._window)
        return (dx,)
