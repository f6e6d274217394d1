"""Convolution, and fully connected layers, which are convolutions over whole maps."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ....kernels import extent
from ...common import Channels, Name, NotNegativePair, Positive, PositivePair
from ..onnx_nodes import Arrays, Export, Form
from ..operation import (
    EngineView,
    LayerOperation,
    LayerRows,
    Window,
    rows_needed,
    rows_reaching,
    windows,
)
from ..shape import Shape
from .resize import Zeros

if TYPE_CHECKING:
    from ..onnx_graph import Keys, OnnxNode, Value, Walk


def _arrays(node: OnnxNode, *, bias: bool) -> dict[str, str]:
    """Return the names of a node's weights, and of its bias where it has one."""
    return dict(zip(("weight", "bias")[: 1 + bias], node.inputs[1:], strict=False))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Conv(LayerOperation):
    """A convolution with `channels` output channels; `kernel`, `stride`, `pad`, `dilation`: a
    number, or [rows, columns].

    In `groups`, input and output channels fall into as many equal parts; each output channel is a
    sum over the input channels of its part alone. `tied` names the embedding whose weights it has,
    too, transposed. `cut` says along which channels devices share it, if that is not left to their
    number (`mapping/slices.py`).
    """

    channels: Channels
    kernel: PositivePair
    stride: PositivePair = (1, 1)
    pad: NotNegativePair = (0, 0)
    dilation: PositivePair = (1, 1)
    groups: Positive = 1
    bias: bool = True
    tied: Name | None = None
    cut: Literal["ICP", "OCP"] | None = None

    type = "conv"
    onnx = ("Conv", "ConvTranspose")
    convolves, may_be_off_chip, one_memory = True, False, False

    def with_channels(self, channels: int) -> Conv:
        """See `LayerOperation`."""
        return dataclasses.replace(self, channels=channels)

    def window(self, shape: Shape) -> Window:
        """See `LayerOperation`."""
        return Window(self.kernel, self.stride, self.pad, self.dilation)

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        for name, channels in (("input", inputs[0][0]), ("output", self.channels)):
            if channels % self.groups:
                raise ValueError(
                    f"`groups` = {self.groups} does not divide its {channels} {name} channels"
                )
        if self.groups > 1 and self.cut == "ICP":
            raise ValueError(
                f'`cut` = "ICP": in {self.groups} groups it is cut by output channels; leave it out'
            )
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
        reach = self.window(shape).extent[0]
        down = shape[1], made[1], reach, self.stride[0], self.pad[0]
        return LayerRows(rows_needed(*down), rows_reaching(*down), np.arange(shape[1]))

    def engine_view(self, shape: Shape, made: Shape) -> EngineView:
        """See `LayerOperation`."""
        return EngineView(*shape[1:], *made[1:], tile=self.kernel[0] * self.kernel[1], values=1)

    def torch(self, nn: Any, shape: Shape) -> Sequence[Any]:
        """See `LayerOperation`."""
        return [
            nn.Conv2d(
                shape[0],
                self.channels,
                self.kernel,
                self.stride,
                self.pad,
                self.dilation,
                groups=self.groups,
                bias=self.bias,
            )
        ]

    @classmethod
    def from_arrays(cls, node: OnnxNode, arrays: Arrays) -> Arrays:
        """See `Operation`; weights of MatMul, and mostly of Gemm, are (inputs, outputs), and so
        are those of ConvTranspose, with rows and columns the other way round.
        """
        if node.operator == "ConvTranspose":
            return {**arrays, "weight": _turned(arrays["weight"], node.integer("group", 1))}
        turned = node.operator in ("MatMul", "Gemm") and not node.integer("transB", 0)
        own = {"weight": arrays["weight"].T if turned else arrays["weight"]}
        return own if "bias" not in arrays else {**own, "bias": arrays["bias"].reshape(-1)}

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`; weights are (output channels, input channels of a group, rows, columns).

        Padding that differs between sides, and transposed convolutions, are `zeros` before it.

        Raises:
            InputError: more than two dimensions, or padding of a network's inputs that differs
                between sides.
        """
        from ..onnx_graph import MAPS

        weight, axes = walk.weight(node), walk.axes_of(walk.take(node, padded=True))
        transposed, groups = node.operator == "ConvTranspose", node.integer("group", 1)
        if axes != MAPS and sorted(axes) == sorted(MAPS) and 1 in weight[2:]:
            raise node.refusal(
                "is a convolution over one axis (Conv1d), as Keras writes it; only those over rows"
                " and columns (Conv2d) are supported there"
            )
        if len(weight) not in (3, 4):
            raise node.refusal(
                f"is a convolution over {len(weight) - 2} axes; only those over rows and columns"
                " (Conv2d), and over one axis (Conv1d), are supported"
            )
        kernel = weight[2:]
        value = walk.maps(node, padded=not transposed, over=len(kernel))
        if (size := node.integers("kernel_shape", kernel)) != kernel:
            raise node.refusal(
                f"`kernel_shape` = {list(size)}, but its weights are {'x'.join(map(str, weight))}"
            )
        if transposed:
            weight = weight[1] * groups, weight[0] // groups
            window, zeros = _transposed_keys(node, kernel)
        else:
            window, zeros = window_keys(walk, node, value, kernel, uneven=True)
        expected = value
        if any(zeros.values()):
            between = zeros.get("scale", (1, 1)) != (1, 1)
            alone = all(map(walk.is_used_once, node.inputs[:1]))
            if walk.step_of(value) is None and (between or not alone):
                raise node.refusal(
                    "puts zeros around a network's inputs that others take, too, or between them;"
                    " that is supported behind a layer: pad the inputs themselves"
                )
            value = walk.step(node, Zeros, zeros, value, axes=value.axes)
        keys = {
            "channels": weight[0],
            **window,
            "groups": groups,
            "bias": walk.has_bias(node),
        }
        arrays = _arrays(node, bias=bool(keys["bias"]))
        made = walk.step(node, cls, keys, value, axes=value.axes, arrays=arrays)
        walk.expect(node, expected, channels=weight[1] * groups)
        return made

    def to_onnx(self, out: Export) -> None:
        """See `Operation`; a convolution of one place over a sequence is a product for each
        step.
        """
        window = self.window(out.reads[0].shape)
        if out.form is Form.MAPS:
            keys = {"kernel_shape": window.kernel, "strides": window.stride, "pads": window.pad * 2}
            if window.dilation != (1, 1):
                keys["dilations"] = window.dilation
            out.write("Conv", out.weight("weight"), *out.biases(), **keys, group=self.groups)
        elif (
            out.form is Form.STEPS and window == Window((1, 1), (1, 1), (0, 0)) and self.groups == 1
        ):
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
    """A fully connected layer with `features` outputs: a convolution whose kernel is the whole
    map.
    """

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
    def from_arrays(cls, node: OnnxNode, arrays: Arrays) -> Arrays:
        """See `Conv`."""
        return Conv.from_arrays(node, arrays)

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`; the bias after a MatMul is a separate Add (`Add.from_onnx`).

        On a sequence, it is a convolution over each step.

        Raises:
            InputError: it is more than inputs times weights plus bias, or takes maps that were not
                flattened.
        """
        place = -1
        if node.operator == "MatMul" and node.inputs[:1] and node.inputs[0] in walk.constants:
            # weights (outputs, inputs) times columns
            place = -2
            node = dataclasses.replace(node, inputs=node.inputs[::-1], attributes={"transB": 1})
        value = walk.take(node, mixed=True)
        order, value = value.channels, dataclasses.replace(value, channels=None)
        walk.expect_channels(node, value, place)
        value = walk.with_channels(node, value, place)
        axes = walk.axes_of(value)
        is_row = value.is_flat and place == -1
        if not is_row and (value.axes is None or axes[place:][:1] != ("channels",)):
            raise node.refusal(
                "takes maps where it needs a row of values; Flatten makes one of them"
            )
        if (
            node.integer("transA", 0)
            or node.number("alpha", 1.0) != 1
            or node.number("beta", 1.0) != 1
        ):
            raise node.refusal(
                "only inputs times weights plus bias is supported: `transA` = 0, `alpha` = 1,"
                " `beta` = 1"
            )
        weight = walk.weight(node)
        if len(weight) != 2:
            raise node.refusal(
                f"weights of {len(weight)} dimensions, where a fully connected layer has 2"
            )
        inputs, outputs = weight[::-1] if node.integer("transB", 0) else weight
        bias = walk.has_bias(node)
        if not value.is_flat and "last" not in axes:  # each step on its own
            walk.expect(node, value, channels=inputs)
            keys = {"channels": outputs, "kernel": (1, 1), "bias": bias}
            made = walk.step(node, Conv, keys, value, like=value, arrays=_arrays(node, bias=bias))
            walk.replace(made.step, inputs=order)
            return made
        walk.expect(node, value, values=inputs)
        keys = {"features": outputs, "bias": bias}
        return walk.step(node, cls, keys, value, like=value, arrays=_arrays(node, bias=bias))

    def to_onnx(self, out: Export) -> None:
        """See `Operation`."""
        weight = out.weight("weight", lambda weight: weight.reshape(self.features, -1))
        row = out.nodes.row(out.x, f"{out.name}/flat")
        out.write_of([row], "Gemm", weight, *out.biases(), form=Form.ROW, transB=1)


def _turned(weight: NDArray[Any], groups: int) -> NDArray[Any]:
    """Return weights of a transposed convolution as those of the convolution that computes it."""
    inputs, outputs, *kernel = weight.shape
    own = weight.reshape(groups, inputs // groups, outputs, *kernel).swapaxes(1, 2)
    return np.flip(own.reshape(groups * outputs, inputs // groups, *kernel), (2, 3)[: len(kernel)])


def _transposed_keys(node: OnnxNode, kernel: tuple[int, ...]) -> tuple[Keys, Keys]:
    """Return the keys of the convolution that computes a transposed one, and of `zeros` before it.

    Raises:
        InputError: it has a dilation, or more padding than its kernel takes.
    """
    count = len(kernel)
    ones, none = (1,) * count, (0,) * count
    stride, dilations = node.integers("strides", ones), node.integers("dilations", ones)
    pads, more = node.integers("pads", none * 2), node.integers("output_padding", none)
    automatic = node.attributes.get("auto_pad", "NOTSET")
    if automatic not in ("NOTSET", "VALID") or "output_shape" in node.attributes:
        raise node.refusal("its padding should be numbers, `pads` and `output_padding`")
    if any(size > 1 and step != 1 for size, step in zip(kernel, dilations, strict=False)):
        raise node.refusal(f"`dilations` = {list(dilations)}: only 1 is supported")
    if {len(stride), len(more), len(pads) / 2} != {count} or min(stride) < 1 or min(more) < 0:
        raise node.refusal("its strides and padding should be numbers for rows and columns")
    sides = [
        (size - 1 - begin, size - 1 - end + extra)
        for size, begin, end, extra in zip(kernel, pads[:count], pads[count:], more, strict=True)
    ]
    if any(min(pair) < 0 for pair in sides):
        raise node.refusal(f"`pads` = {list(pads)}: cuts off more than a kernel makes at a side")
    return _with_zeros(kernel, stride, sides)


def _with_zeros(
    kernel: tuple[int, ...], scale: tuple[int, ...], sides: list[tuple[int, int]]
) -> tuple[Keys, Keys]:
    """Return the keys of a convolution without strides, and of `zeros` that it takes: between
    values, and what padding (before, after) has beyond as much on each side.
    """
    (rows, columns), (down, across) = ((*pair, 1)[:2] for pair in (kernel, scale))
    (above, below), (left, right) = (*sides, (0, 0))[:2]
    pad = min(above, below, rows - 1), min(left, right, columns - 1)
    zeros: dict[str, object] = {"above": above - pad[0], "left": left - pad[1]}
    zeros |= {"below": below - pad[0], "right": right - pad[1]}
    if (down, across) != (1, 1):
        zeros["scale"] = down, across
    return {"kernel": (rows, columns), "stride": (1, 1), "pad": pad}, zeros


def window_keys(
    walk: Walk, node: OnnxNode, value: Value, kernel: tuple[int, ...], *, uneven: bool = False
) -> tuple[Keys, Keys]:
    """Return the keys `kernel`, `stride`, `pad` and, if it has one, `dilation` of a node's window
    over maps, and over the zeros around them, and those of `zeros` before it; a window over one
    axis is one over rows.

    Padding that differs between sides is taken where the windows are those of equal padding, or,
    where it may be `uneven`, by `zeros`; pools may round sizes up (`ceil`).

    Raises:
        InputError: the windows are others.
    """
    ones = (1,) * len(kernel)
    dilations, stride = node.integers("dilations", ones), node.integers("strides", ones)
    for name, pair in (("strides", stride), ("dilations", dilations)):
        if len(pair) != len(kernel) or min(pair) < 1:
            raise node.refusal(
                f"`{name}` = {list(pair)}: there should be one for rows and one for columns"
            )
    (kh, kw), stride, (dh, dw) = ((*pair, 1)[:2] for pair in (kernel, stride, dilations))
    taps, dilation = (kh, kw), (dh if kh > 1 else 1, dw if kw > 1 else 1)
    kernel = extent(taps, dilation)
    shape = walk.shape(value)
    sizes = (None, None) if shape is None else shape[1:]
    padding = _padding(node, kernel, stride, sizes, over=len(ones))
    extra = value.pads or (0, 0, 0, 0)
    pads = tuple(own + more for own, more in zip(padding, extra, strict=True))
    rounds_up = node.integer("ceil_mode", 0) != 0
    keys: dict[str, object] = {"kernel": taps, "stride": stride, "pad": pads[:2]}
    if dilation != (1, 1):
        keys["dilation"] = dilation
    for place, size in enumerate(sizes):
        begin, end = pads[place], pads[place + 2]
        if begin == end and not rounds_up:
            continue
        if size is None or _count(
            size, begin, end, kernel[place], stride[place], rounds_up
        ) != _count(size, begin, begin, kernel[place], stride[place], False):
            if begin != end and uneven:
                own, zeros = _with_zeros(kernel, (1, 1), [(pads[n], pads[n + 2]) for n in (0, 1)])
                return {**keys, "pad": own["pad"]}, zeros
            if begin != end:
                raise node.refusal(
                    f"`pads` = {list(pads)}: only as much padding at the end as at the beginning is"
                    " supported"
                )
            keys["ceil"] = True
    return keys, {}


def _count(size: int, begin: int, end: int, kernel: int, stride: int, rounds_up: bool) -> int:
    """Return how many windows there are; of those by rounding up, none begins in the padding at the
    end (PyTorch).
    """
    room = size + begin + end - kernel
    if not rounds_up:
        return room // stride + 1
    count = -(-room // stride) + 1
    return count - ((count - 1) * stride >= size + begin)


def _padding(
    node: OnnxNode,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    sizes: tuple[int | None, ...],
    over: int,
) -> tuple[int, ...]:
    """Return the node's own padding: above, left, below and right; of a window `over` one axis,
    above and below.
    """
    automatic = node.attributes.get("auto_pad", "NOTSET")
    pads = node.integers("pads", (0, 0) * over)
    if over == 1 and len(pads) == 2:
        pads = pads[0], 0, pads[1], 0
    if automatic != "NOTSET" and any(pads):
        raise node.refusal(
            f"`pads` = {list(pads)} beside `auto_pad` = {automatic!r}: there should be one of them"
        )
    if automatic == "VALID":
        return 0, 0, 0, 0
    if automatic in ("SAME_UPPER", "SAME_LOWER"):
        begins, ends = [], []
        for size, length, step in zip(sizes, kernel, stride, strict=True):
            if size is None and step > 1:
                raise node.refusal(
                    f"`auto_pad` = {automatic!r}: with strides, only on maps of known sizes"
                )
            # As much as ceil(size / step) windows need, whatever the kernel (ONNX).
            total = max(
                0, length - step if size is None or size % step == 0 else length - size % step
            )
            # Of an odd total, SAME_LOWER puts the larger half before the maps, SAME_UPPER behind.
            halves = total // 2, total - total // 2
            begins.append(halves[automatic == "SAME_LOWER"])
            ends.append(halves[automatic == "SAME_UPPER"])
        return *begins, *ends
    if automatic != "NOTSET":
        raise node.refusal(
            f"`auto_pad` = {automatic!r}: should be NOTSET, VALID, SAME_UPPER or SAME_LOWER"
        )
    if len(pads) != 4 or min(pads) < 0:
        raise node.refusal(
            f"`pads` = {list(pads)}: there should be four, above, left, below and right"
        )
    return pads
