"""Sigmoid, and its form of straight lines."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from ..element_wise import ElementWise

if TYPE_CHECKING:
    from ..onnx_graph import OnnxNode, Value, Walk


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sigmoid(ElementWise):
    """1 / (1 + exp(-x))."""

    type = "sigmoid"
    onnx = ("Sigmoid",)
    never_negative = True

    def torch(self, nn: Any) -> Any:
        """See `SfuOperation`."""
        return nn.Sigmoid()


@dataclasses.dataclass(frozen=True, kw_only=True)
class HardSigmoid(ElementWise):
    """(x + 3) / 6, at least 0 and at most 1."""

    type = "hard-sigmoid"
    onnx = ("HardSigmoid",)
    never_negative = True

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
        return super().from_onnx(walk, node)
