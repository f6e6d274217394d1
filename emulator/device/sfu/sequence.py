"""Maps to sequences, and sequences to their last step."""

from __future__ import annotations

from collections.abc import Sequence as Several

import numpy as np
from numpy.typing import NDArray

from ...network import SfuStep
from ...network.operations.sequence import LastStep, Sequence
from .unit import Data, Site, State, Training, Unit


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


class LastStepUnit(Unit):
    """The last step of each sample's own length; without lengths, that of the maps."""

    operation = LastStep

    def __init__(self, step: SfuStep, site: Site) -> None:
        super().__init__(step, site)
        self._channels, self._steps, _ = step.input

    def forward(self, xs: Several[Data], version: int, training: Training | None) -> tuple[Data, State]:
        """See `Unit`."""
        [x] = xs
        last = self._last(len(x), None if training is None else training.lengths)
        return self._picked(x, last), (last,)

    def infer(self, xs: Several[Data], version: int, lengths: NDArray[np.int64] | None) -> Data:
        """See `Unit`."""
        [x] = xs
        return self._picked(x, self._last(len(x), lengths))

    def backward(self, state: State, dz: Data, version: int) -> Several[Data]:
        """See `Unit`; steps before the last, and those of the padding, have no error."""
        [last] = state
        dx = self.arena.take((len(dz), self._steps, 1, self._channels))
        dx[...] = 0
        dx[np.arange(len(dz)), last] = dz[:, 0]
        return (dx,)

    def _last(self, samples: int, lengths: NDArray[np.int64] | None) -> NDArray[np.int64]:
        last = self.arena.take((samples,), np.int64)
        last[...] = self._steps - 1 if lengths is None else lengths - 1
        return last

    def _picked(self, x: Data, last: NDArray[np.int64]) -> Data:
        y = self.arena.take((len(x), 1, 1, self._channels))
        y[:, 0] = x[np.arange(len(x)), last]
        return y
