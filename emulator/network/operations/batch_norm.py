"""Batch normalisation."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Gt, Le

from ...common import FINITE, PositiveFinite
from ..operation import SfuOperation
from ..shape import Shape

if TYPE_CHECKING:
    from ..onnx_graph import OnnxNode, Value, Walk


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchNorm(SfuOperation):
    """Each channel normalised by moving averages of its mean and variance, then scaled and shifted.

    The averages are over mini-batches, because a chain that works on one sample after another never sees a mini-batch
    at once.
    """

    epsilon: PositiveFinite = 1e-5
    momentum: Annotated[float, FINITE, Gt(0), Le(1)] = 0.1

    by_channel = True
    type = "batch-norm"
    onnx = ("BatchNormalization",)

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        return inputs[0]

    def parameters(self, channels: int) -> int:
        """See `SfuOperation`; each channel has a scale and a shift."""
        return 2 * channels

    def torch(self, nn: Any) -> Any:
        """See `SfuOperation`; it knows its channels after its first use, and normalises by each mini-batch."""
        return nn.LazyBatchNorm2d(self.epsilon, self.momentum)

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`; ONNX's momentum is the old average's weight, ours the new one's.

        Raises:
            InputError: it does not normalise whole channels.
        """
        value = walk.take(node)
        if walk.axes_of(value)[1] not in ("channels", "values"):
            raise node.refusal("normalises another axis than channels, which should be axis 1")
        scale, *_ = (walk.weight(node, place) for place in range(1, 5))
        walk.expect(node, value, channels=math.prod(scale))
        if node.integer("spatial", 1) != 1:
            raise node.refusal("`spatial` = 0: only channels are normalised, each as a whole")
        momentum = round(1 - node.number("momentum", 0.9), 7)
        keys = {"epsilon": node.number("epsilon", 1e-5), "momentum": momentum}
        return walk.step(node, cls, keys, value, like=value)
