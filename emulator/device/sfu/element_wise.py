"""Units of element-wise operations."""

from __future__ import annotations

import abc
from collections.abc import Sequence

from .unit import Data, State, Training, Unit


class ElementWise(Unit):
    """A unit that turns each value into another one; by default its inputs are kept for the way back."""

    @abc.abstractmethod
    def apply(self, x: Data, y: Data, /) -> None:
        """Write the results of `x` to `y`."""

    @abc.abstractmethod
    def error(self, kept: Data, dy: Data, /) -> None:
        """Turn the errors `dy` of the results into those of the inputs, in place, from the maps that were kept."""

    def forward(self, xs: Sequence[Data], version: int, training: Training | None) -> tuple[Data, State]:
        """See `Unit`."""
        [x] = xs
        y = self.arena.take(x.shape)
        self.apply(x, y)
        return y, (x,)

    def backward(self, state: State, dz: Data, version: int) -> Sequence[Data]:
        """See `Unit`."""
        self.error(state[0], dz)
        return (dz,)
