"""Sequences: maps as time steps, the last step, and the embedding of symbols."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence as Several
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ...common import Channels
from ..onnx_nodes import Export, Form
from ..operation import LayerRows, RowLayer, SfuOperation, SfuRows
from ..shape import Shape, shown

if TYPE_CHECKING:
    from ..onnx_graph import OnnxNode, Value, Walk


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sequence(SfuOperation):
    """A map's rows become time steps: the columns of each channel stand one after the other as channels."""

    type = "sequence"
    may_begin = True

    def output(self, inputs: Several[Shape]) -> Shape:
        """See `Operation`."""
        [(channels, rows, columns)] = inputs
        return channels * columns, rows, 1

    def torch(self, nn: Any) -> Any:
        """See `SfuOperation`; maps become (samples, steps, values)."""

        class Rows(nn.Module):
            def forward(self, x: Any) -> Any:
                return x.permute(0, 2, 1, 3).flatten(2)

        return Rows()

    def to_onnx(self, out: Export) -> None:
        """See `Operation`."""
        out.nodes.name(out.makes, out.nodes.steps(out.x, out.name), Form.STEPS)


def sequence_shape(inputs: Several[Shape], kind: str, row: str) -> Shape:
    """Return the shape of the one input of an operation, which calls its rows so.

    Raises:
        ValueError: it is not a sequence.
    """
    [shape] = inputs
    if shape[2] != 1:
        raise ValueError(f"maps of {shown(shape)}: {kind} takes a sequence, one row a {row} and one column")
    return shape


class OneStep(SfuOperation):
    """One row of a sequence: that at a `place`, as Python counts."""

    by_channel = True
    place: ClassVar[int]
    row: ClassVar[str] = "step"

    def output(self, inputs: Several[Shape]) -> Shape:
        """See `Operation`."""
        channels, _, _ = sequence_shape(inputs, self.type, self.row)
        return channels, 1, 1

    def rows(self, shape: Shape, made: Shape) -> SfuRows:
        """See `SfuOperation`; it waits for the last row, so that no error goes back for rows that have not come."""
        return SfuRows(np.array([shape[1] - 1]), np.zeros(shape[1], np.int64))

    def to_onnx(self, out: Export) -> None:
        """See `Operation`."""
        sequence = out.nodes.steps(out.x, f"{out.name}/steps")
        place = out.nodes.array(f"{out.name}.place", np.array(self.place))
        out.write_of([sequence], "Gather", place, form=Form.ROW, axis=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LastStep(OneStep):
    """The last time step of a sequence: of each sample's own length, where lengths differ."""

    type = "last-step"
    place = -1

    def torch(self, nn: Any) -> Any:
        """See `SfuOperation`; takes (samples, steps, values)."""

        class Last(nn.Module):
            def forward(self, x: Any) -> Any:
                return (x[0] if isinstance(x, tuple) else x)[:, -1]

        return Last()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Embedding(RowLayer):
    """For each step, the column of weights of its symbol: `features` values.

    It takes one channel for each symbol, of which the one that is there is 1 and the others are 0. On boards and links,
    a row of inputs is the symbol itself.
    """

    features: Channels

    type = "embedding"
    bias: ClassVar[bool] = False  # type: ignore[misc]  # it has none
    looks_up = True

    @property
    def cuts_outputs(self) -> bool:
        """See `LayerOperation`."""
        return True

    def with_channels(self, channels: int) -> Embedding:
        """See `LayerOperation`."""
        return dataclasses.replace(self, features=channels)

    def output(self, inputs: Several[Shape]) -> Shape:
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

    def torch(self, nn: Any, shape: Shape) -> Several[Any]:
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

    def to_onnx(self, out: Export) -> None:
        """See `Operation`."""
        if out.form is not Form.SYMBOLS:
            super().to_onnx(out)
        table = out.weight("weight", lambda weight: weight.reshape(self.features, -1).T)
        out.write_of([table], "Gather", *out.taken, form=Form.STEPS, axis=0)
