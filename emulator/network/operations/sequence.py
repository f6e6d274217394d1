"""Maps to sequences, and sequences to their last step."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence as Several
from typing import Any

import numpy as np

from ..operation import SfuOperation
from ..rows import SfuRows
from ..shape import Shape, shown


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sequence(SfuOperation):
    """A map's rows become time steps: the columns of each channel stand one after the other as channels."""

    type = "sequence"
    may_begin = True

    def output(self, inputs: Several[Shape]) -> Shape:
        """See `Operation`."""
        [(channels, rows, columns)] = inputs
        return channels * columns, rows, 1

    def torch(self, nn: Any) -> Any:
        """See `SfuOperation`; maps become (samples, steps, values)."""

        class Rows(nn.Module):
            def forward(self, x: Any) -> Any:
                return x.permute(0, 2, 1, 3).flatten(2)

        return Rows()


@dataclasses.dataclass(frozen=True, kw_only=True)
class LastStep(SfuOperation):
    """The last time step of a sequence: of each sample's own length, where lengths differ."""

    type = "last-step"
    by_channel = True

    def output(self, inputs: Several[Shape]) -> Shape:
        """See `Operation`."""
        [shape] = inputs
        if shape[2] != 1:
            raise ValueError(f"maps of {shown(shape)}: last-step takes a sequence, one row a step and one column")
        return shape[0], 1, 1

    def rows(self, shape: Shape, made: Shape) -> SfuRows:
        """See `SfuOperation`."""
        return SfuRows(np.array([shape[1] - 1]), np.zeros(shape[1], np.int64))

    def torch(self, nn: Any) -> Any:
        """See `SfuOperation`; takes (samples, steps, values)."""

        class Last(nn.Module):
            def forward(self, x: Any) -> Any:
                return (x[0] if isinstance(x, tuple) else x)[:, -1]

        return Last()
