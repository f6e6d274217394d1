"""Embedding of symbols."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ...common import Channels
from ..operation import EngineView, LayerOperation, Window
from ..rows import LayerRows
from ..shape import Shape, shown

if TYPE_CHECKING:
    from ..onnx_graph import OnnxNode, Value, Walk


@dataclasses.dataclass(frozen=True, kw_only=True)
class Embedding(LayerOperation):
    """For each step, the column of weights of its symbol: `features` values.

    It takes one channel for each symbol, of which the one that is there is 1 and the others are 0.
    """

    features: Channels

    type = "embedding"
    bias: ClassVar[bool] = False  # type: ignore[misc]  # it has none
    convolves, may_be_off_chip, one_memory = False, False, True

    @property
    def cuts_outputs(self) -> bool:
        """See `LayerOperation`."""
        return True

    def with_channels(self, channels: int) -> Embedding:
        """See `LayerOperation`."""
        return dataclasses.replace(self, features=channels)

    def window(self, shape: Shape) -> Window:
        """See `LayerOperation`."""
        return Window((1, 1), (1, 1), (0, 0))

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        [shape] = inputs
        if shape[2] != 1:
            raise ValueError(
                f"maps of {shown(shape)}: an embedding takes a sequence of symbols, one row a step and one column"
            )
        return self.features, *shape[1:]

    def taps(self, shape: Shape, *, with_inputs: bool = True) -> int:
        """See `LayerOperation`: one value is looked up."""
        return 1

    def rows(self, shape: Shape, made: Shape) -> LayerRows:
        """See `LayerOperation`."""
        steps = np.arange(shape[1])
        return LayerRows(steps, steps, steps)

    def engine_view(self, shape: Shape, made: Shape) -> EngineView:
        """See `LayerOperation`."""
        return EngineView(shape[1], 1, shape[1], 1, tile=1, values=1)

    def torch(self, nn: Any, shape: Shape) -> Sequence[Any]:
        """See `LayerOperation`; takes the numbers of the symbols."""
        return [nn.Embedding(shape[0], self.features)]

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`; the node is a Gather from weights (symbols, features) by the network's input.

        Raises:
            InputError: it looks up something else, or by something else.
        """
        from ..onnx_graph import FROM_IMAGES

        value, weight = walk.take(node, 1), walk.weight(node, 0)
        axes = walk.axes_of(value)
        if value.step != FROM_IMAGES or len(axes) != 2 or len(weight) != 2 or node.integer("axis", 0) != 0:
            raise node.refusal(
                "looks up constants; only the input's symbols (samples x steps) in weights (symbols x features) are"
                " supported"
            )
        walk.look_up(node, weight[0])
        return walk.step(node, cls, {"features": weight[1]}, value, axes=(*axes, "channels"))
