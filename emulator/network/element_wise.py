"""Operations on each value by itself: shapes and channels stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .operation import SfuOperation
from .shape import Shape

if TYPE_CHECKING:
    from .onnx_graph import OnnxNode, Value, Walk


class ElementWise(SfuOperation):
    """An operation on each value by itself, by default without keys."""

    by_channel = True

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        return inputs[0]

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`."""
        value = walk.take(node)
        return walk.step(node, cls, {}, value, like=value)


class Rectifier(ElementWise):
    """ReLU, or what resembles it."""

    @property
    def he_gain(self) -> float:
        """2, because ReLU halves the variance."""
        return 2.0
