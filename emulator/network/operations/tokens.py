"""What transformers do to rows of a sequence: tokens of maps, positions, the first step, normalisation.

ONNX has no nodes for positions and class tokens: it adds and concatenates arrays of the file (`joins.py`).
"""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ...common import PositiveFinite
from ..onnx_nodes import Export, Form
from ..operation import SfuOperation, SfuRows
from ..shape import Shape
from .sequence import OneStep, sequence_shape

if TYPE_CHECKING:
    from ..onnx_graph import OnnxNode, Value, Walk


class RowOperation(SfuOperation):
    """An operation on each row of a sequence by itself."""

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        return inputs[0]


class _RowNorm(RowOperation):
    """Normalisation of each pixel's channels; `onnx_arrays` are its arrays, in the order of ONNX's inputs."""

    onnx_arrays: ClassVar[tuple[str, ...]]
    keeps_map = True

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`; without a shift of its own, the node's is 0.

        Raises:
            InputError: it normalises other axes than channels.
        """
        value, scale = walk.take(node), walk.weight(node)
        axes, shape = walk.axes_of(value), walk.shape(value)
        is_row = value.is_flat and shape is not None and shape[1:] == (1, 1)
        is_last = node.integer("axis", -1) % len(axes) == len(axes) - 1
        if not (axes[-1] == "channels" or is_row) or not is_last or len(scale) != 1:
            raise node.refusal(f"normalises other axes than the last one, channels, of {walk.shown_axes(value)}")
        walk.expect(node, value, channels=scale[0])
        for place in range(2, len(node.inputs)):
            walk.weight(node, place)
        arrays = dict(zip(cls.onnx_arrays, node.inputs[1:], strict=False))
        return walk.step(node, cls, {"epsilon": node.number("epsilon", 1e-5)}, value, like=value, arrays=arrays)

    def to_onnx(self, out: Export) -> None:
        """See `Operation`; ONNX has it for the last axis."""
        if out.form is Form.ROW and out.reads[0].shape[1:] != (1, 1):
            raise out.refusal(f"{self.type} on {out.form.value} ({out.layer})")
        x, maps = out.x, out.form is Form.MAPS
        if maps:
            x = out.nodes.add("Transpose", [x], f"{out.name}/last", perm=[0, 2, 3, 1])
        made = self._written(out, x, f"{out.name}/normal" if maps else out.result)
        if maps:
            out.nodes.add("Transpose", [made], out.result, perm=[0, 3, 1, 2])
        out.nodes.name(out.makes, out.result, out.form)

    @abc.abstractmethod
    def _written(self, out: Export, x: str, made: str) -> str:
        """Write the nodes that normalise the last axis of x; return the name of their result, `made`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerNorm(_RowNorm):
    """Each pixel's channels less their mean, over their standard deviation, scaled and shifted (Ba et al., 2016)."""

    epsilon: PositiveFinite = 1e-5

    type = "layer-norm"
    onnx, onnx_arrays = ("LayerNormalization",), ("scale", "shift")

    def parameters(self, made: Shape) -> int:
        """See `SfuOperation`; each channel has a scale and a shift."""
        return 2 * made[0]

    def _written(self, out: Export, x: str, made: str) -> str:
        arrays = [out.weight("scale"), out.weight("shift")]
        return out.nodes.add("LayerNormalization", [x, *arrays], made, out.name, axis=-1, epsilon=self.epsilon)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RmsNorm(_RowNorm):
    """Each pixel's channels over the root of their mean square, scaled (Zhang and Sennrich, 2019)."""

    epsilon: PositiveFinite = 1e-5

    type = "rms-norm"
    onnx, onnx_arrays = ("RMSNormalization",), ("scale",)

    def parameters(self, made: Shape) -> int:
        """See `SfuOperation`; each channel has a scale."""
        return made[0]

    def _written(self, out: Export, x: str, made: str) -> str:
        nodes, name = out.nodes, out.name
        square = nodes.add("Mul", [x, x], f"{name}/square")
        mean = nodes.add("ReduceMean", [square], f"{name}/mean", axes=[-1], keepdims=1)
        above_0 = nodes.add("Add", [mean, out.number("epsilon", self.epsilon)], f"{name}/above_0")
        root = nodes.add("Sqrt", [above_0], f"{name}/root")
        quotient = nodes.add("Div", [x, root], f"{name}/quotient")
        return nodes.add("Mul", [quotient, out.weight("scale")], made, name)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Positions(RowOperation):
    """A learnt value for each row and channel, added."""

    type = "positions"

    def parameters(self, made: Shape) -> int:
        """See `SfuOperation`."""
        return made[0] * made[1]

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        return sequence_shape(inputs, self.type, "token")

    def to_onnx(self, out: Export) -> None:
        """See `Operation`."""
        channels, rows, _ = out.makes.shape
        steps = out.nodes.steps(out.x, f"{out.name}/steps")
        out.write_of([steps], "Add", out.weight("positions", lambda all: all.reshape(rows, channels)), form=Form.STEPS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tokens(SfuOperation):
    """The pixels of a map, row by row, as rows of a sequence; with `class_token`, a learnt row before them."""

    class_token: bool = False

    type = "tokens"

    def parameters(self, made: Shape) -> int:
        """See `SfuOperation`."""
        return made[0] * self.class_token

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        [(channels, rows, columns)] = inputs
        return channels, rows * columns + self.class_token, 1

    def rows(self, shape: Shape, made: Shape) -> SfuRows:
        """See `SfuOperation`; the class token waits for nothing that later tokens do not wait for."""
        _, rows, columns = shape
        forward = np.repeat(np.arange(rows), columns)
        if self.class_token:
            forward = np.concatenate([[0], forward])
        return SfuRows(forward, np.arange(1, rows + 1) * columns - 1 + self.class_token)

    def to_onnx(self, out: Export) -> None:
        """See `Operation`."""
        nodes, name, (channels, *sides) = out.nodes, out.name, out.reads[0].shape
        steps = out.x
        if out.form is Form.ROW:
            raise out.refusal(f"{self.type} on {out.form.value} ({out.layer})")
        if out.form is Form.MAPS:
            sizes = nodes.numbers(f"{name}.pixels", 0, channels, math.prod(sides))
            merged = nodes.add("Reshape", [steps, sizes], f"{name}/pixels")
            steps = nodes.add("Transpose", [merged], f"{name}/tokens", perm=[0, 2, 1])
        elif not self.class_token:
            nodes.name(out.makes, steps, Form.STEPS)
            return
        if self.class_token:
            token = out.weight("class_token", lambda token: token.reshape(1, 1, channels))
            sizes = nodes.add("Shape", [steps], f"{name}/sizes")
            ends = nodes.numbers(f"{name}.0", 0), nodes.numbers(f"{name}.1", 1)
            samples = nodes.add("Slice", [sizes, *ends], f"{name}/samples")
            shape = nodes.add("Concat", [samples, nodes.numbers(f"{name}.token", 1, channels)], f"{name}/shape", axis=0)
            before = nodes.add("Expand", [token, shape], f"{name}/before")
            steps = nodes.add("Concat", [before, steps], out.result, name, axis=1)
        nodes.name(out.makes, steps, Form.STEPS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FirstStep(OneStep):
    """The first row of a sequence, such as that of a class token."""

    type = "first-step"
    place, row = 0, "token"

    def torch(self, nn: Any) -> Any:
        """See `SfuOperation`; takes (samples, steps, values)."""

        class First(nn.Module):
            def forward(self, x: Any) -> Any:
                return x[:, 0]

        return First()
