"""What recurrent layers share: an LSTM or GRU over a sequence, one time step a row (FARNN, section 3).

A step is a 1×1 convolution over its inputs and the hidden state of the step before, with `gates` results for each unit,
then element-wise activations. Each unit's weights stand together, gate after gate: those of the inputs, those of the
hidden state, and the two biases. So a cut by whole units leaves the order of accumulation as it is.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ..common import Channels
from .operation import EngineView, LayerOperation, Window
from .rows import LayerRows
from .shape import Shape, shown

BIASES = 2
"""Biases of a gate: b_W and b_R."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recurrent(LayerOperation):
    """A recurrent layer of `units` cells a direction; with `bidirectional`, results of both directions stand together.

    With `projection`, each step's outputs, which are also the hidden state, are that many sums over the cells.
    """

    units: Channels
    projection: Channels | None = None
    bidirectional: bool = False

    gates: ClassVar[int]
    """Results of a step for each unit, before the activations."""

    bias: ClassVar[bool] = False  # type: ignore[misc]  # each unit's biases are among its weights
    convolves, may_be_off_chip, one_memory = False, False, True
    recurs = True

    @property
    def directions(self) -> int:
        """1, or 2 if bidirectional."""
        return 1 + self.bidirectional

    @property
    def hidden(self) -> int:
        """Values of a direction's hidden state: its units, or the projection's sums."""
        return self.units if self.projection is None else self.projection

    @property
    @abc.abstractmethod
    def is_divisible(self) -> bool:
        """Whether the layer may be cut by units."""

    def weight_columns(self, inputs: int) -> int:
        """Return the weights of a unit for each gate: inputs, hidden state, biases."""
        return inputs + self.hidden + BIASES

    def weight_shape(self, shape: Shape, made: Shape) -> tuple[int, int, int, int]:
        """See `LayerOperation`: (units, values of a unit, 1, 1), or (1, all values, 1, 1) if it is not divisible."""
        each = self.gates * self.weight_columns(shape[0])
        if self.is_divisible:
            return self.units, each, 1, 1
        whole = self.directions * (self.units * each + (self.projection or 0) * self.units)
        return 1, whole, 1, 1

    def pieces(self, made: Shape) -> int:
        """See `LayerOperation`: units, if it is divisible."""
        return self.units if self.is_divisible else 1

    def taps(self, shape: Shape, *, with_inputs: bool = True) -> int:
        """See `LayerOperation`: multiply-accumulates of a step for each of its pieces."""
        each = self.gates * (with_inputs * shape[0] + self.hidden)
        if self.is_divisible:
            return each
        return self.directions * self.units * (each + (self.projection or 0))

    def kept_values(self, shape: Shape) -> int:
        """See `LayerOperation`: the hidden state, and each unit's gates and cell."""
        cells = self.directions * self.units * (self.gates + 1)
        return shape[1] * (self.directions * self.hidden + cells)

    def with_channels(self, channels: int) -> Recurrent:
        """See `LayerOperation`; the channels are units."""
        return dataclasses.replace(self, units=channels)

    def window(self, shape: Shape) -> Window:
        """See `LayerOperation`."""
        return Window((1, 1), (1, 1), (0, 0))

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        [shape] = inputs
        if shape[2] != 1:
            raise ValueError(
                f"maps of {shown(shape)} have {shape[2]} columns, where {self.type} takes a sequence: one row a time"
                ' step and one column; put {type = "sequence"} before it'
            )
        return self.directions * self.hidden, shape[1], 1

    def rows(self, shape: Shape, made: Shape) -> LayerRows:
        """See `LayerOperation`; a step of a bidirectional layer waits for the last one."""
        steps = np.arange(shape[1])
        needed = np.full_like(steps, shape[1] - 1) if self.bidirectional else steps
        return LayerRows(needed, needed, steps)

    def engine_view(self, shape: Shape, made: Shape) -> EngineView:
        """See `LayerOperation`."""
        return EngineView(shape[1], 1, shape[1], 1, tile=1, values=1)

    @abc.abstractmethod
    def torch(self, nn: Any, shape: Shape) -> Sequence[Any]:
        """See `LayerOperation`."""
