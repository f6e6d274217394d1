"""Rotary positions of queries and keys, between the layer that makes them and attention (Su et al., 2021)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ...common import Channels, PositiveFinite
from ..shape import Shape
from .sequence import sequence_shape
from .tokens import RowOperation


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rotary(RowOperation):
    """Pairs of channels of each head's queries and keys, turned by angles that grow with the row's number.

    It takes channels head by head, as attention does; values stay. Pair i of a head's e channels is (i, i + e / 2), as
    in Llama; where `interleaved`, it is (2 i, 2 i + 1). Its angle in row t is t * base ^ (-2 i / e).
    """

    heads: Channels
    base: PositiveFinite = 10000.0
    interleaved: bool = False

    type = "rotary"

    @property
    def parts(self) -> tuple[int, int]:
        """Of a head: queries, keys and values; and how many of these, from the first, are turned."""
        return 3, 2

    def size(self, shape: Shape) -> int:
        """Return the channels of a head's queries, keys or values."""
        return shape[0] // (self.parts[0] * self.heads)

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        shape = sequence_shape(inputs, self.type, "token")
        step = 2 * self.parts[0] * self.heads
        if shape[0] % step:
            raise ValueError(
                f"`heads` = {self.heads}: {shape[0]} channels do not divide into q, k and v of that many heads, in"
                f" pairs; should be a multiple of {step}"
            )
        return shape
