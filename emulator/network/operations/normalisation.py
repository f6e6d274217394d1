"""Normalisation, over mini-batches or across channels; dropout; and the softmax that closes a network."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Gt, Le

from ...common import FINITE, Finite, Positive, PositiveFinite, Rate
from ..onnx_nodes import Export, Form
from ..operation import Closing, SfuOperation
from ..shape import Shape
from .activations import ElementWise

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
    keeps_map = True
    type = "batch-norm"
    onnx = ("BatchNormalization",)

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        return inputs[0]

    def parameters(self, made: Shape) -> int:
        """See `SfuOperation`; each channel has a scale and a shift."""
        return 2 * made[0]

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
        arrays = dict(zip(("scale", "shift", "mean", "variance"), node.inputs[1:5], strict=True))
        return walk.step(node, cls, keys, value, like=value, arrays=arrays)

    def to_onnx(self, out: Export) -> None:
        """See `Operation`; ONNX has it for channels before other axes."""
        out.expect(Form.MAPS, Form.ROW)
        arrays = [out.weight(key) for key in ("scale", "shift", "mean", "variance")]
        out.write("BatchNormalization", *arrays, epsilon=self.epsilon, momentum=1 - self.momentum)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lrn(SfuOperation):
    """Local response normalisation across channels (AlexNet's)."""

    size: Positive = 5
    alpha: Finite = 1e-4
    beta: Finite = 0.75
    k: PositiveFinite = 2.0

    keeps_map = True
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

    def to_onnx(self, out: Export) -> None:
        """See `Operation`.

        Raises:
            InputError: an even size, as in `from_onnx`.
        """
        out.expect(Form.MAPS)
        if self.size % 2 == 0:
            raise out.refusal(f"lrn with an even size ({out.layer})")
        out.write("LRN", size=self.size, alpha=self.alpha, beta=self.beta, bias=self.k)


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

    def to_onnx(self, out: Export) -> None:
        """See `Operation`."""
        out.write("Dropout", out.number("rate", self.rate))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Softmax(Closing):
    """Softmax with cross-entropy, which closes every network.

    Where it is `vocabulary_parallel`, the layer before it is cut by output channels, and each of its slices computes
    the loss's sums and errors of its own: devices send one another two numbers of a row, and no logits.
    """

    vocabulary_parallel: bool = False

    type = "softmax"

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        return inputs[0]
