"""Units whose results have other shapes than their inputs: pooling, joins, and sequences."""

from __future__ import annotations

import abc
import itertools
from collections.abc import Sequence as Several
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....kernels.layers import pool
from ...network import SfuStep
from ...network.operations.joins import Add, Concat
from ...network.operations.pool import AveragePool, MaxPool
from ...network.operations.sequence import LastStep, Sequence
from ...network.operations.tokens import FirstStep
from .unit import Data, Site, State, Training, Unit


class _PoolUnit(Unit):
    """Base class of pooling units."""

    def __init__(self, step: SfuStep, site: Site) -> None:
        super().__init__(step, site)
        pool = step.operation
        assert isinstance(pool, (MaxPool, AveragePool))
        self._window: dict[str, Any] = {"kernel": pool.kernel, "stride": pool.step, "pad": pool.pad}
        channels, *size = step.input
        self._input = (*size, channels)
        channels, *size = step.output
        self._output = (*size, channels)


class MaxPoolUnit(_PoolUnit):
    """The maximum of each window, and its position for the backward pass."""

    operation = MaxPool

    def forward(self, xs: Several[Data], version: int, training: Training | None) -> tuple[Data, State]:
        """See `Unit`."""
        [x] = xs
        shape = (len(x), *self._output)
        y, places = self.arena.take(shape), self.arena.take(shape, np.uint8)
        pool.max_forward(x, y, places, **self._window)
        return y, (places,)

    def backward(self, state: State, dz: Data, version: int) -> Several[Data]:
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

    def forward(self, xs: Several[Data], version: int, training: Training | None) -> tuple[Data, State]:
        """See `Unit`."""
        [x] = xs
        y = self.arena.take((len(x), *self._output))
        pool.average_forward(x, y, **self._window)
        return y, ()

    def backward(self, state: State, dz: Data, version: int) -> Several[Data]:
        """See `Unit`."""
        dx = self.arena.take((len(dz), *self._input))
        pool.average_error(dz, dx, **self._window)
        return (dx,)


class AddUnit(Unit):
    """The sum of the inputs, in order."""

    operation = Add

    def __init__(self, step: SfuStep, site: Site) -> None:
        super().__init__(step, site)
        self._terms = len(step.reads)

    def forward(self, xs: Several[Data], version: int, training: Training | None) -> tuple[Data, State]:
        """See `Unit`."""
        y = self.arena.take(xs[0].shape)
        np.add(xs[0], xs[1], out=y)
        for x in xs[2:]:
            y += x
        return y, ()

    def backward(self, state: State, dz: Data, version: int) -> Several[Data]:
        """See `Unit`."""
        return [dz] * self._terms


class ConcatUnit(Unit):
    """The channels of all inputs, in order."""

    operation = Concat

    def __init__(self, step: SfuStep, site: Site) -> None:
        super().__init__(step, site)
        ends = list(itertools.accumulate((tensor.shape[0] for tensor in step.reads), initial=0))
        self._spans = [slice(*ends) for ends in itertools.pairwise(ends)]

    def forward(self, xs: Several[Data], version: int, training: Training | None) -> tuple[Data, State]:
        """See `Unit`."""
        y = self.arena.take((*xs[0].shape[:3], self._spans[-1].stop))
        for span, x in zip(self._spans, xs, strict=True):
            y[..., span] = x
        return y, ()

    def backward(self, state: State, dz: Data, version: int) -> Several[Data]:
        """See `Unit`."""
        return [dz[..., span] for span in self._spans]


class SequenceUnit(Unit):
    """The columns of each channel, one after the other, as channels of one column."""

    operation = Sequence

    def __init__(self, step: SfuStep, site: Site) -> None:
        super().__init__(step, site)
        self._channels, self._rows, self._columns = step.input

    def forward(self, xs: Several[Data], version: int, training: Training | None) -> tuple[Data, State]:
        """See `Unit`."""
        [x] = xs
        y = self.arena.take((len(x), self._rows, 1, self._channels * self._columns))
        self._as_maps(y)[...] = x
        return y, ()

    def backward(self, state: State, dz: Data, version: int) -> Several[Data]:
        """See `Unit`."""
        dx = self.arena.take((len(dz), self._rows, self._columns, self._channels))
        dx[...] = self._as_maps(dz)
        return (dx,)

    def _as_maps(self, steps: Data) -> Data:
        """Return a view of a sequence as maps (samples, rows, columns, channels)."""
        return steps.reshape(len(steps), self._rows, self._channels, self._columns).swapaxes(2, 3)


class _OneStepUnit(Unit):
    """One row of each sample's sequence."""

    def __init__(self, step: SfuStep, site: Site) -> None:
        super().__init__(step, site)
        self._channels, self._steps, _ = step.input

    def forward(self, xs: Several[Data], version: int, training: Training | None) -> tuple[Data, State]:
        """See `Unit`."""
        [x] = xs
        place = self._place(len(x), None if training is None else training.lengths)
        return self._picked(x, place), (place,)

    def infer(self, xs: Several[Data], version: int, lengths: NDArray[np.int64] | None) -> Data:
        """See `Unit`."""
        [x] = xs
        return self._picked(x, self._place(len(x), lengths))

    def backward(self, state: State, dz: Data, version: int) -> Several[Data]:
        """See `Unit`; all other steps, and those of the padding, have no error."""
        [place] = state
        dx = self.arena.take((len(dz), self._steps, 1, self._channels))
        dx[...] = 0
        dx[np.arange(len(dz)), place] = dz[:, 0]
        return (dx,)

    @abc.abstractmethod
    def _place(self, samples: int, lengths: NDArray[np.int64] | None) -> NDArray[np.int64]:
        """Return the number of each sample's row."""

    def _picked(self, x: Data, place: NDArray[np.int64]) -> Data:
        y = self.arena.take((len(x), 1, 1, self._channels))
        y[:, 0] = x[np.arange(len(x)), place]
        return y


class LastStepUnit(_OneStepUnit):
    """The last step of each sample's own length; without lengths, that of the maps."""

    operation = LastStep

    def _place(self, samples: int, lengths: NDArray[np.int64] | None) -> NDArray[np.int64]:
        place = self.arena.take((samples,), np.int64)
        place[...] = self._steps - 1 if lengths is None else lengths - 1
        return place


class FirstStepUnit(_OneStepUnit):
    """The first row."""

    operation = FirstStep

    def _place(self, samples: int, lengths: NDArray[np.int64] | None) -> NDArray[np.int64]:
        place = self.arena.take((samples,), np.int64)
        place[...] = 0
        return place
