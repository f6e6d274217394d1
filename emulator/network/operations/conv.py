"""Convolution."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...common import Channels, NotNegativePair, Positive, PositivePair
from ..operation import EngineView, LayerOperation, Window, windows
from ..rows import LayerRows, rows_needed, rows_reaching
from ..shape import Shape

if TYPE_CHECKING:
    from ..onnx_graph import OnnxNode, Value, Walk


@dataclasses.dataclass(frozen=True, kw_only=True)
class Conv(LayerOperation):
    """A convolution with `channels` output channels; `kernel`, `stride`, `pad`: a number, or [rows, columns].

    In `groups`, input and output channels fall into as many equal parts; each output channel is a sum over the input
    channels of its part alone.
    """

    channels: Channels
    kernel: PositivePair
    stride: PositivePair = (1, 1)
    pad: NotNegativePair = (0, 0)
    groups: Positive = 1
    bias: bool = True

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
        return self.channels, *windows(inputs[0], self.window(inputs[0]))

    @property
    def cuts_outputs(self) -> bool:
        """See `LayerOperation`: in groups, an output channel needs few input channels."""
        return self.groups > 1

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
        from ..onnx_graph import window_keys

        value, weight = walk.maps(node, padded=True), walk.weight(node)
        if len(weight) != 4:
            raise node.refusal(
                f"a convolution over {len(weight) - 2} dimensions; only those over rows and columns are supported"
            )
        kernel = weight[2:]
        if (size := node.integers("kernel_shape", kernel)) != kernel:
            raise node.refusal(f"`kernel_shape` = {list(size)}, but its weights are {'x'.join(map(str, weight))}")
        groups = node.integer("group", 1)
        window = window_keys(walk, node, value, kernel)
        keys = {"channels": weight[0], "kernel": kernel, **window, "groups": groups, "bias": walk.has_bias(node)}
        made = walk.step(node, cls, keys, value)
        walk.expect(node, value, channels=weight[1] * groups)
        return made
