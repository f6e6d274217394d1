"""Rectified linear units."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..operation import SfuOperation
from ..shape import Shape

if TYPE_CHECKING:
    from ..onnx_graph import OnnxNode, Value, Walk


@dataclasses.dataclass(frozen=True, kw_only=True)
class Relu(SfuOperation):
    """max(0, x)."""

    by_channel = True
    type = "relu"
    onnx = ("Relu",)

    @property
    def he_gain(self) -> float:
        """2, because ReLU halves the variance."""
        return 2.0

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        return inputs[0]

    def torch(self, nn: Any) -> Any:
        """See `SfuOperation`."""
        return nn.ReLU(inplace=True)

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`."""
        value = walk.take(node)
        return walk.step(node, cls, {}, value, like=value)
