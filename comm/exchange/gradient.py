"""The data that replicas exchange: all values of a device's gradients in one row, in blocks."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from .time import VALUE_BYTES

Values = NDArray[np.float32]


@dataclasses.dataclass(frozen=True)
class Gradient:
    """`count` float32 values, which exchanges change in place; None with timing only."""

    count: int
    values: Values | None

    def block(self, number: int, blocks: int) -> Gradient:
        """Return one of `blocks` blocks of equal size, the first ones a value longer (Algorithm 1, line 8); a view."""
        size, longer = divmod(self.count, blocks)
        begin, end = (place * size + min(place, longer) for place in (number, number + 1))
        return Gradient(end - begin, None if self.values is None else self.values[begin:end])

    def put(self, values: Values | None) -> None:
        """Overwrite the values with these."""
        if self.values is not None:
            self.values[...] = values

    def add(self, values: Values | None) -> None:
        """Add a received sum to the worker's own values, in place (Algorithm 1, line 11)."""
        if self.values is not None:
            np.add(values, self.values, out=self.values)  # type: ignore[arg-type]  # both have values, or neither

    @property
    def bytes(self) -> int:
        """Size as float32."""
        return VALUE_BYTES * self.count
