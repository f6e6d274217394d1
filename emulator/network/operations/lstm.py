"""Long short-term memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from ..recurrent import Recurrent
from ..shape import Shape


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lstm(Recurrent):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997), as in FARNN's equations (1) and (2).

    Gates are in PyTorch's order: input, forget, new, output.
    """

    type = "lstm"
    gates = 4

    @property
    def is_divisible(self) -> bool:
        """See `Recurrent`; the projection needs all cells."""
        return self.projection is None and not self.bidirectional

    def torch(self, nn: Any, shape: Shape) -> Sequence[Any]:
        """See `LayerOperation`; takes and returns (samples, steps, values), and the states."""
        keys = {"batch_first": True, "bidirectional": self.bidirectional, "proj_size": self.projection or 0}
        return [nn.LSTM(shape[0], self.units, **keys)]
