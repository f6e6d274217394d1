"""Fully connected layers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...common import Channels
from ..operation import EngineView, LayerOperation, Window
from ..rows import LayerRows, rows_needed
from ..shape import Shape
from .conv import Conv

if TYPE_CHECKING:
    from ..onnx_graph import OnnxNode, Value, Walk


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fc(LayerOperation):
    """A fully connected layer with `features` outputs: a convolution whose kernel is the whole map."""

    features: Channels
    bias: bool = True

    type = "fc"
    onnx = ("Gemm", "MatMul")
    convolves, may_be_off_chip, one_memory = False, True, True

    def with_channels(self, channels: int) -> Fc:
        """See `LayerOperation`."""
        return dataclasses.replace(self, features=channels)

    def window(self, shape: Shape) -> Window:
        """See `LayerOperation`."""
        return Window(shape[1:], (1, 1), (0, 0))

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        return self.features, 1, 1

    def rows(self, shape: Shape, made: Shape) -> LayerRows:
        """See `LayerOperation`; all error rows are made at once."""
        once = np.zeros(shape[1], np.int64)
        return LayerRows(rows_needed(shape[1], 1, shape[1], 1, 0), np.zeros(1, np.int64), once)

    def engine_view(self, shape: Shape, made: Shape) -> EngineView:
        """See `LayerOperation`; it is a 1×1 convolution with one channel for each input."""
        return EngineView(1, 1, 1, 1, tile=1, values=shape[1] * shape[2])

    def torch(self, nn: Any, shape: Shape) -> Sequence[Any]:
        """See `LayerOperation`."""
        return [nn.Flatten(), nn.Linear(math.prod(shape), self.features, bias=self.bias)]

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`; the bias after a MatMul is a separate Add (`Add.from_onnx`).

        On a sequence, it is a convolution over each step.

        Raises:
            InputError: it is more than inputs times weights plus bias, or takes maps that were not flattened.
        """
        value = walk.take(node)
        axes = walk.axes_of(value)
        if len(axes) == 3 and axes[-1].isdigit():  # inputs of which it is not known yet which axis is time
            axes = *axes[:2], "channels"
            walk.expect_axes(node, value, axes)
        if not value.is_flat and (value.axes is None or axes[-1] != "channels"):
            raise node.refusal("takes maps where it needs a row of values; Flatten makes one of them")
        if node.integer("transA", 0) or node.number("alpha", 1.0) != 1 or node.number("beta", 1.0) != 1:
            raise node.refusal(
                "only inputs times weights plus bias is supported: `transA` = 0, `alpha` = 1, `beta` = 1"
            )
        weight = walk.weight(node)
        if len(weight) != 2:
            raise node.refusal(f"weights of {len(weight)} dimensions, where a fully connected layer has 2")
        inputs, outputs = weight[::-1] if node.integer("transB", 0) else weight
        bias = walk.has_bias(node)
        if not value.is_flat and "last" not in axes:  # each step on its own
            walk.expect(node, value, channels=inputs)
            return walk.step(node, Conv, {"channels": outputs, "kernel": (1, 1), "bias": bias}, value, like=value)
        walk.expect(node, value, values=inputs)
        return walk.step(node, cls, {"features": outputs, "bias": bias}, value, like=value)
