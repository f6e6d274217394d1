"""Leaky rectified linear units."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from ...common import Rate
from ..element_wise import ElementWise

if TYPE_CHECKING:
    from ..onnx_graph import OnnxNode, Value, Walk


@dataclasses.dataclass(frozen=True, kw_only=True)
class LeakyRelu(ElementWise):
    """x where it is above 0, else `slope` times x."""

    slope: Rate = 0.01

    type = "leaky-relu"
    onnx = ("LeakyRelu",)

    @property
    def he_gain(self) -> float:
        """2 / (1 + slope^2) (He et al., 2015, equation 15)."""
        return 2 / (1 + self.slope**2)

    def torch(self, nn: Any) -> Any:
        """See `SfuOperation`."""
        return nn.LeakyReLU(self.slope)

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`; ONNX calls the slope alpha."""
        value = walk.take(node)
        return walk.step(node, cls, {"slope": node.number("alpha", 0.01)}, value, like=value)
