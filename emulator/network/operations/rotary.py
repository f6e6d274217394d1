"""Rotary positions of queries and keys, between the layer that makes them and attention (Su et al.,
2021).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....kernels.layers.rotary import rotate, turns
from ...common import Channels, PositiveFinite
from ..operation import SfuStep
from ..shape import Shape
from ..unit import Data, Inputs, Made, Site, State, Training, Unit, Weights
from .attention import check_heads
from .sequence import sequence_shape
from .tokens import RowOperation


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rotary(RowOperation):
    """Pairs of channels of each head's queries and keys, turned by angles that grow with the row's
    number.

    It takes channels head by head, as attention does; values stay. Pair i of a head's e channels is
    (i, i + e / 2), as in Llama; where `interleaved`, it is (2 i, 2 i + 1). Its angle in row t is
    t * base ^ (-2 i / e).
    """

    heads: Channels
    kv_heads: Channels | None = None
    base: PositiveFinite = 10000.0
    interleaved: bool = False

    type = "rotary"
    torch_form = "rows"

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`."""
        import torch

        interleaved, (parts, rotated), size = self.interleaved, self.parts, self.size(shape)
        # Of a row, the same for all groups and parts.
        tables = [table[:, None, None] for table in turns(shape[1], size, self.base)]

        class Turned(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                for name, table in zip(("cosines", "sines"), tables, strict=True):
                    self.register_buffer(name, torch.from_numpy(table.copy()), persistent=False)

            def forward(self, x: Any) -> Any:
                whole = x.unflatten(2, (-1, parts, size))
                turned = whole[:, :, :, :rotated]
                # Pairs on an axis of their own: (i, i + size / 2), or (2 i, 2 i + 1).
                axis, sizes = (-1, (-1, 2)) if interleaved else (-2, (2, -1))
                a, b = turned.unflatten(-1, sizes).unbind(axis)
                pairs = a * self.cosines - b * self.sines, b * self.cosines + a * self.sines
                made = torch.stack(pairs, axis).flatten(-2)
                return torch.cat([made, whole[:, :, :, rotated:]], 3).flatten(2)

        return Turned()

    @property
    def groups(self) -> int:
        """Those of heads that share k and v."""
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def parts(self) -> tuple[int, int]:
        """Of a group: queries, keys and values; and how many of these, from the first, are turned:
        not the values.
        """
        sharing = self.heads // self.groups
        return sharing + 2, sharing + 1

    def size(self, shape: Shape) -> int:
        """Return the channels of a head's queries, keys or values."""
        return shape[0] // (self.parts[0] * self.groups)

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        shape = sequence_shape(inputs, self.type, "token")
        check_heads(
            self.heads, self.groups, shape, 2 * self.parts[0] * self.groups, "heads of pairs"
        )
        return shape

    def unit(self, step: SfuStep, site: Site) -> Unit:
        """See `SfuOperation`."""
        return RotaryUnit(self, step, site)


class RotaryUnit(Unit):
    """Pairs of channels turned by angles of the row; errors are turned back."""

    overwrites = True

    def __init__(self, rotary: Rotary, step: SfuStep, site: Site) -> None:
        super().__init__(site)
        self._cosines, self._sines = turns(step.input[1], rotary.size(step.input), rotary.base)
        self._parts, self._interleaved = rotary.parts, rotary.interleaved

    def forward(self, xs: Inputs, weights: Weights, training: Training | None) -> Made:
        """See `Unit`."""
        [x] = xs
        self._turn(x, 1)
        return x, ()

    def backward(self, state: State, dz: Data, weights: Weights) -> Inputs:
        """See `Unit`."""
        self._turn(dz, -1)
        return (dz,)

    def _turn(self, maps: Data, way: int) -> None:
        parts, rotated = self._parts
        # The inverse of a rotation is that by the negative angle, of which only the sine differs.
        sines = self._sines * np.float32(way)
        rotate(
            maps,
            maps,
            self._cosines,
            sines,
            parts=parts,
            rotated=rotated,
            interleaved=self._interleaved,
        )
