"""Sigmoid, and its form of straight lines."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..operation import SfuOperation
from ..shape import Shape

if TYPE_CHECKING:
    from ..onnx_graph import OnnxNode, Value, Walk


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sigmoid(SfuOperation):
    """1 / (1 + exp(-x))."""

    by_channel = True
    type = "sigmoid"
    onnx = ("Sigmoid",)

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        return inputs[0]

    def torch(self, nn: Any) -> Any:
        """See `SfuOperation`."""
        return nn.Sigmoid()

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`."""
        value = walk.take(node)
        return walk.step(node, cls, {}, value, like=value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class HardSigmoid(SfuOperation):
    """(x + 3) / 6, at least 0 and at most 1."""

    by_channel = True
    type = "hard-sigmoid"
    onnx = ("HardSigmoid",)

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        return inputs[0]

    def torch(self, nn: Any) -> Any:
        """See `SfuOperation`."""
        return nn.Hardsigmoid()

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`.

        Raises:
            InputError: another line than PyTorch's.
        """
        alpha, beta = node.number("alpha", 0.2), node.number("beta", 0.5)
        if not math.isclose(alpha, 1 / 6, rel_tol=1e-6) or beta != 0.5:
            raise node.refusal(f"`alpha` = {alpha:g}, `beta` = {beta:g}: only 1/6 and 0.5, as in PyTorch, is supported")
        value = walk.take(node)
        return walk.step(node, cls, {}, value, like=value)
