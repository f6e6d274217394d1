"""Local response normalisation."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...common import Finite, Positive, PositiveFinite
from ..operation import SfuOperation
from ..shape import Shape

if TYPE_CHECKING:
    from ..onnx_graph import OnnxNode, Value, Walk


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lrn(SfuOperation):
    """Local response normalisation across channels (AlexNet's)."""

    size: Positive = 5
    alpha: Finite = 1e-4
    beta: Finite = 0.75
    k: PositiveFinite = 2.0

    type = "lrn"
    onnx = ("LRN",)

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        return inputs[0]

    def torch(self, nn: Any) -> Any:
        """See `SfuOperation`."""
        return nn.LocalResponseNorm(self.size, self.alpha, self.beta, self.k)

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`.

        Raises:
            InputError: an even size, for which ONNX and emuchain have the extra channel on different sides.
        """
        size = node.integer("size", 0)
        if size % 2 == 0:
            raise node.refusal(f"`size` = {size}: only odd sizes are supported")
        factors = {"alpha": node.number("alpha", 1e-4), "beta": node.number("beta", 0.75)}
        return walk.step(node, cls, {"size": size, **factors, "k": node.number("bias", 1.0)}, walk.maps(node))
