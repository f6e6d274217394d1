"""Gated recurrent units."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

from ..recurrent import Recurrent
from ..shape import Shape


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gru(Recurrent):
    """Gated recurrent units (Cho et al., 2014); gates are in PyTorch's order: reset, update, new.

    The reset gate acts `after` the recurrent product, as in cuDNN and PyTorch, or `before` it, as first published.
    """

    reset: Literal["after", "before"] = "after"

    type = "gru"
    gates = 3

    def __post_init__(self) -> None:
        if self.projection is not None:
            raise ValueError("`projection`: a gru has none; an lstm has")

    @property
    def is_divisible(self) -> bool:
        """See `Recurrent`; a reset before the product needs the reset gates of all units."""
        return self.reset == "after" and not self.bidirectional

    def torch(self, nn: Any, shape: Shape) -> Sequence[Any]:
        """See `LayerOperation`; takes and returns (samples, steps, values), and the states.

        Raises:
            ValueError: the reset gate acts before the recurrent product, which PyTorch does not have.
        """
        if self.reset == "before":
            raise ValueError('PyTorch has only `reset` = "after"')
        return [nn.GRU(shape[0], self.units, batch_first=True, bidirectional=self.bidirectional)]
