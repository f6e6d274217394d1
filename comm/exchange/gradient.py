"""What replicas exchange: all values of a device's gradients in one row, in blocks."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from .time import VALUE_BYTES

Values = NDArray[np.float32]


@dataclasses.dataclass(frozen=True)
class Gradient:
    """So many float32 values, which exchanges change in place; None where there is timing alone."""

    count: int
    values: Values | None

    def block(self, number: int, blocks: int) -> Gradient:
        """One of so many blocks, as equal as may be, longer ones first (Algorithm 1, line 8); a view."""
        size, longer = divmod(self.count, blocks)
        begin, end = (place * size + min(place, longer) for place in (number, number + 1))
        return Gradient(end - begin, None if self.values is None else self.values[begin:end])

    def put(self, values: Values | None) -> None:
        """Take these values."""
        if self.values is not None:
            self.values[...] = values

    def add(self, values: Values | None) -> None:
        """Add these values: what came is the sum so far, and these are added to it (Algorithm 1, line 11)."""
        if self.values is not None:
            np.add(values, self.values, out=self.values)  # type: ignore[arg-type]  # values come with values

    @property
    def bytes(self) -> int:
        """As float32."""
        return VALUE_BYTES * self.count
