"""Values of an ONNX graph, the steps that make them, and what nodes expect of them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from ..shape import Shape, shown
from .node import OnnxNode

Keys = Mapping[str, object]
"""The keys of an operation, as in a TOML file."""

FROM_IMAGES = -1
"""The network's inputs, in place of a step's number."""

CELLS = -2
"""The last cells of an LSTM, which no operation takes, in place of the number of a step whose last state it is."""


Axes = tuple[str, ...]
"""Names of axes, in order. Rows are time steps; `directions` are those of a recurrent layer, `last` is one step.

Axes of an input that is not images have their places as names, until a node says what they are.
"""

MAPS: Axes = ("samples", "channels", "rows", "columns")
FLAT: Axes = ("samples", "values")
CHANNELS_LAST: Axes = ("samples", "rows", "columns", "channels")
ONE = "one"
"""An axis that is none of those of maps."""


@dataclasses.dataclass(frozen=True)
class Step:
    """An operation of type `kind`, with its keys, the node that it comes from, and the steps whose results it takes.

    `order` is that of `Value`, of the first result that it takes.
    """

    node: OnnxNode
    kind: type[Any]
    keys: Keys
    takes: tuple[int, ...]
    order: Axes | None = None


@dataclasses.dataclass(frozen=True)
class Expectation:
    """What a node expects of the result of a step: a number of channels, of values in all, or of time steps."""

    node: OnnxNode
    step: int
    channels: int | None
    values: int | None
    steps: int | None = None

    def check(self, shape: Shape) -> None:
        """Check the expectation against the shape that follows from the graph.

        Raises:
            InputError: they differ.
        """
        wanted = ("channels", self.channels, shape[0]), ("values", self.values, math.prod(shape))
        for kind, count, found in (*wanted, ("time steps", self.steps, shape[1])):
            if count not in (None, found):
                raise self.node.refusal(f"is made for {count} {kind}, but takes maps of {shown(shape)}")


@dataclasses.dataclass(frozen=True)
class Value:
    """The result of a step, as maps or as one row of values; `is_closed` after softmax, when nothing may take it.

    With `axes`, a sequence or maps with their axes in this order. A recurrent layer's last state has the steps of all
    layers that it is of in `state`. A row of values has the axes that it was made of in `order`. With `pads`, zeros
    that the node `padded_by` put above, left, below and right of maps, which the next window has to take in.
    """

    step: int
    is_flat: bool = False
    is_closed: bool = False
    axes: Axes | None = None
    state: tuple[int, ...] = ()
    order: Axes | None = None
    pads: tuple[int, int, int, int] | None = None
    padded_by: OnnxNode | None = None

    def with_axes(self, axes: Axes) -> Value:
        """Return the value with these axes; one value of each channel for each sample is a row of values."""
        if axes == ("samples", "channels"):
            return dataclasses.replace(self, is_flat=True, axes=None)
        is_maps = len(axes) == 4 and all(own in (ONE, name) for own, name in zip(axes, MAPS, strict=True))
        return dataclasses.replace(self, is_flat=False, axes=None if is_maps else axes)
