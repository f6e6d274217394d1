"""Convolution, and fully connected layers, which are convolutions over whole maps."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...common import Channels, Name, NotNegativePair, Positive, PositivePair
from ..onnx_nodes import Export, Form
from ..operation import EngineView, LayerOperation, LayerRows, Window, rows_needed, rows_reaching, windows
from ..shape import Shape

if TYPE_CHECKING:
    from ..onnx_graph import OnnxNode, Value, Walk


@dataclasses.dataclass(frozen=True, kw_only=True)
class Conv(LayerOperation):
    """A convolution with `channels` output channels; `kernel`, `stride`, `pad`: a number, or [rows, columns].

    In `groups`, input and output channels fall into as many equal parts; each output channel is a sum over the input
    channels of its part alone. `tied` names the embedding whose weights it has, too, transposed. `cut` says along which
    channels devices share it, if that is not left to their number (`mapping/slices.py`).
    """

    channels: Channels
    kernel: PositivePair
    stride: PositivePair = (1, 1)
    pad: NotNegativePair = (0, 0)
    groups: Positive = 1
    bias: bool = True
    tied: Name | None = None
    cut: Literal["ICP", "OCP"] | None = None

    type = "conv"
    onnx = ("Conv",)
    convolves, may_be_off_chip, one_memory = True, False, False

    def with_channels(self, channels: int) -> Conv:
        """See `LayerOperation`."""
        return dataclasses.replace(self, channels=channels)

    def window(self, shape: Shape) -> Window:
        """See `LayerOperation`."""
        return Window(self.kernel, self.stride, self.pad)

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        for name, channels in (("input", inputs[0][0]), ("output", self.channels)):
            if channels % self.groups:
                raise ValueError(f"`groups` = {self.groups} does not divide its {channels} {name} channels")
        if self.groups > 1 and self.cut == "ICP":
            raise ValueError(f'`cut` = "ICP": in {self.groups} groups it is cut by output channels; leave it out')
        return self.channels, *windows(inputs[0], self.window(inputs[0]))

    @property
    def cuts_outputs(self) -> bool | None:
        """See `LayerOperation`: in groups, an output channel needs few input channels."""
        return self.cut == "OCP" if self.cut is not None else True if self.groups > 1 else None

    @property
    def makes_logits(self) -> bool:
        """See `LayerOperation`: of each row on its own."""
        return self.kernel == (1, 1) and self.groups == 1

    def weight_shape(self, shape: Shape, made: Shape) -> tuple[int, int, int, int]:
        """See `LayerOperation`; (oc, input channels of a group, kh, kw)."""
        return made[0], self.taps(shape), *self.kernel

    def taps(self, shape: Shape, *, with_inputs: bool = True) -> int:
        """See `LayerOperation`: the input channels of a group."""
        return shape[0] // self.groups

    def rows(self, shape: Shape, made: Shape) -> LayerRows:
        """See `LayerOperation`."""
        down = shape[1], made[1], self.kernel[0], self.stride[0], self.pad[0]
        return LayerRows(rows_needed(*down), rows_reaching(*down), np.arange(shape[1]))

    def engine_view(self, shape: Shape, made: Shape) -> EngineView:
        """See `LayerOperation`."""
        return EngineView(*shape[1:], *made[1:], tile=self.kernel[0] * self.kernel[1], values=1)

    def torch(self, nn: Any, shape: Shape) -> Sequence[Any]:
        """See `LayerOperation`."""
        return [
            nn.Conv2d(shape[0], self.channels, self.kernel, self.stride, self.pad, groups=self.groups, bias=self.bias)
        ]

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`; weights are (output channels, input channels of a group, rows, columns).

        Raises:
            InputError: dilation, other than two dimensions, or padding that differs between sides where that matters.
        """
        from ..onnx_graph import MAPS, window_keys

        weight, axes = walk.weight(node), walk.axes_of(walk.take(node, padded=True))
        is_turned = axes != MAPS and sorted(axes) == sorted(MAPS) and 1 in weight[2:]  # of Keras
        if len(weight) != 4 or is_turned:
            over = "one axis (Conv1d)" if len(weight) == 3 or is_turned else f"{len(weight) - 2} axes"
            raise node.refusal(f"is a convolution over {over}; only those over rows and columns (Conv2d) are supported")
        value, kernel = walk.maps(node, padded=True), weight[2:]
        if (size := node.integers("kernel_shape", kernel)) != kernel:
            raise node.refusal(f"`kernel_shape` = {list(size)}, but its weights are {'x'.join(map(str, weight))}")
        groups = node.integer("group", 1)
        window = window_keys(walk, node, value, kernel)
        keys = {"channels": weight[0], "kernel": kernel, **window, "groups": groups, "bias": walk.has_bias(node)}
        made = walk.step(node, cls, keys, value)
        walk.expect(node, value, channels=weight[1] * groups)
        return made

    def to_onnx(self, out: Export) -> None:
        """See `Operation`; a convolution of one place over a sequence is a product for each step."""
        window = self.window(out.reads[0].shape)
        if out.form is Form.MAPS:
            keys = {"kernel_shape": window.kernel, "strides": window.stride, "pads": window.pad * 2}
            out.write("Conv", out.weight("weight"), *out.biases(), **keys, group=self.groups)
        elif out.form is Form.STEPS and window == ((1, 1), (1, 1), (0, 0)) and self.groups == 1:
            taken = [*out.taken, self._table(out) or out.weight("weight", self._of_steps)]
            if biases := out.biases():
                product = out.nodes.add("MatMul", taken, f"{out.name}/product", out.name)
                out.nodes.add("Add", [product, *biases], out.result)
                out.nodes.name(out.makes, out.result, Form.STEPS)
            else:
                out.write_of(taken, "MatMul", form=Form.STEPS)
        else:
            super().to_onnx(out)

    def _of_steps(self, weight: NDArray[Any]) -> NDArray[Any]:
        """Return weights as they are multiplied with the rows of a sequence."""
        return weight.reshape(self.channels, -1).T

    def _table(self, out: Export) -> str:
        """Return the table of the embedding that it is tied to, transposed, if it is."""
        if self.tied is None:
            return ""
        return out.nodes.add("Transpose", [f"{self.tied}.weight"], f"{out.name}/table", perm=[1, 0])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fc(LayerOperation):
    """A fully connected layer with `features` outputs: a convolution whose kernel is the whole map."""

    features: Channels
    bias: bool = True

    type = "fc"
    onnx = ("Gemm", "MatMul")
    convolves, may_be_off_chip, one_memory = False, True, True
    makes_logits = True

    def with_channels(self, channels: int) -> Fc:
        """See `LayerOperation`."""
        return dataclasses.replace(self, features=channels)

    def window(self, shape: Shape) -> Window:
        """See `LayerOperation`."""
        return Window(shape[1:], (1, 1), (0, 0))

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        return self.features, 1, 1

    def rows(self, shape: Shape, made: Shape) -> LayerRows:
        """See `LayerOperation`; all error rows are made at once."""
        once = np.zeros(shape[1], np.int64)
        return LayerRows(rows_needed(shape[1], 1, shape[1], 1, 0), np.zeros(1, np.int64), once)

    def engine_view(self, shape: Shape, made: Shape) -> EngineView:
        """See `LayerOperation`; it is a 1×1 convolution with one channel for each input."""
        return EngineView(1, 1, 1, 1, tile=1, values=shape[1] * shape[2])

    def torch(self, nn: Any, shape: Shape) -> Sequence[Any]:
        """See `LayerOperation`."""
        return [nn.Flatten(), nn.Linear(math.prod(shape), self.features, bias=self.bias)]

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`; the bias after a MatMul is a separate Add (`Add.from_onnx`).

        On a sequence, it is a convolution over each step.

        Raises:
            InputError: it is more than inputs times weights plus bias, or takes maps that were not flattened.
        """
        value = walk.take(node)
        axes = walk.axes_of(value)
        if len(axes) == 3 and axes[-1].isdigit():  # inputs of which it is not known yet which axis is time
            axes = *axes[:2], "channels"
            walk.expect_axes(node, value, axes)
        if not value.is_flat and (value.axes is None or axes[-1] != "channels"):
            raise node.refusal("takes maps where it needs a row of values; Flatten makes one of them")
        if node.integer("transA", 0) or node.number("alpha", 1.0) != 1 or node.number("beta", 1.0) != 1:
            raise node.refusal(
                "only inputs times weights plus bias is supported: `transA` = 0, `alpha` = 1, `beta` = 1"
            )
        weight = walk.weight(node)
        if len(weight) != 2:
            raise node.refusal(f"weights of {len(weight)} dimensions, where a fully connected layer has 2")
        inputs, outputs = weight[::-1] if node.integer("transB", 0) else weight
        bias = walk.has_bias(node)
        if not value.is_flat and "last" not in axes:  # each step on its own
            walk.expect(node, value, channels=inputs)
            return walk.step(node, Conv, {"channels": outputs, "kernel": (1, 1), "bias": bias}, value, like=value)
        walk.expect(node, value, values=inputs)
        return walk.step(node, cls, {"features": outputs, "bias": bias}, value, like=value)

    def to_onnx(self, out: Export) -> None:
        """See `Operation`."""
        weight = out.weight("weight", lambda weight: weight.reshape(self.features, -1))
        row = out.nodes.row(out.x, f"{out.name}/flat")
        out.write_of([row], "Gemm", weight, *out.biases(), form=Form.ROW, transB=1)
