"""Rectified linear units."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from ..element_wise import Rectifier

if TYPE_CHECKING:
    from ..onnx_graph import OnnxNode, Value, Walk


@dataclasses.dataclass(frozen=True, kw_only=True)
class Relu(Rectifier):
    """max(0, x)."""

    type = "relu"
    onnx = ("Max", "Relu")
    never_negative = True

    def torch(self, nn: Any) -> Any:
        """See `SfuOperation`."""
        return nn.ReLU(inplace=True)

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`; the node may be Max of a value and 0.

        Raises:
            InputError: it is the maximum of other things.
        """
        if node.operator == "Relu":
            return super().from_onnx(walk, node)
        value, limit = walk.with_number(node)
        if limit != 0:
            raise node.refusal("takes a maximum; only that of one value and 0 is supported")
        return walk.step(node, cls, {}, value, like=value)
