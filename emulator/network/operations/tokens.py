"""What transformers do to rows of a sequence: tokens of maps, positions, the first step, normalisation."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...common import PositiveFinite
from ..operation import SfuOperation, SfuRows
from ..shape import Shape, shown


class RowOperation(SfuOperation):
    """An operation on each row of a sequence by itself."""

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        return inputs[0]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerNorm(RowOperation):
    """Each pixel's channels less their mean, over their standard deviation, scaled and shifted (Ba et al., 2016)."""

    epsilon: PositiveFinite = 1e-5

    type = "layer-norm"

    def parameters(self, made: Shape) -> int:
        """See `SfuOperation`; each channel has a scale and a shift."""
        return 2 * made[0]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RmsNorm(RowOperation):
    """Each pixel's channels over the root of their mean square, scaled (Zhang and Sennrich, 2019)."""

    epsilon: PositiveFinite = 1e-5

    type = "rms-norm"

    def parameters(self, made: Shape) -> int:
        """See `SfuOperation`; each channel has a scale."""
        return made[0]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Positions(RowOperation):
    """A learnt value for each row and channel, added."""

    type = "positions"

    def parameters(self, made: Shape) -> int:
        """See `SfuOperation`."""
        return made[0] * made[1]

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        return _sequence(inputs, self.type)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tokens(SfuOperation):
    """The pixels of a map, row by row, as rows of a sequence; with `class_token`, a learnt row before them."""

    class_token: bool = False

    type = "tokens"

    def parameters(self, made: Shape) -> int:
        """See `SfuOperation`."""
        return made[0] * self.class_token

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        [(channels, rows, columns)] = inputs
        return channels, rows * columns + self.class_token, 1

    def rows(self, shape: Shape, made: Shape) -> SfuRows:
        """See `SfuOperation`; the class token waits for nothing that later tokens do not wait for."""
        _, rows, columns = shape
        forward = np.repeat(np.arange(rows), columns)
        if self.class_token:
            forward = np.concatenate([[0], forward])
        return SfuRows(forward, np.arange(1, rows + 1) * columns - 1 + self.class_token)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FirstStep(SfuOperation):
    """The first row of a sequence, such as that of a class token."""

    type = "first-step"
    by_channel = True

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        channels, _, _ = _sequence(inputs, self.type)
        return channels, 1, 1

    def rows(self, shape: Shape, made: Shape) -> SfuRows:
        """See `SfuOperation`; it waits for the last row, so that no error goes back for rows that have not come."""
        return SfuRows(np.array([shape[1] - 1]), np.zeros(shape[1], np.int64))

    def torch(self, nn: Any) -> Any:
        """See `SfuOperation`; takes (samples, steps, values)."""

        class First(nn.Module):
            def forward(self, x: Any) -> Any:
                return x[:, 0]

        return First()


def _sequence(inputs: Sequence[Shape], kind: str) -> Shape:
    """Return the shape of the one input.

    Raises:
        ValueError: it is not a sequence.
    """
    [shape] = inputs
    if shape[2] != 1:
        raise ValueError(f"maps of {shown(shape)}: {kind} takes a sequence, one row a token and one column")
    return shape
