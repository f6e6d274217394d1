"""Dropout."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from ...common import Rate
from ..element_wise import ElementWise

if TYPE_CHECKING:
    from ..onnx_graph import OnnxNode, Value, Walk


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dropout(ElementWise):
    """Each value is zeroed with probability `rate` in training, and the others scaled by 1 / (1 - rate)."""

    rate: Rate

    type = "dropout"
    onnx = ("Dropout",)

    def torch(self, nn: Any) -> Any:
        """See `SfuOperation`."""
        return nn.Dropout(self.rate)

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`."""
        value, (rate, *_) = walk.take(node), (*walk.numbers(node, "ratio"), 0.5)
        return walk.step(node, cls, {"rate": rate}, value, like=value)
