"""What transformers do to rows of a sequence: tokens of maps, positions, the first step,
normalisation.

ONNX has no nodes for positions and class tokens: it adds and concatenates arrays of the file
(`joins.py`).
"""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ....kernels.layers.element_wise import add_bias_gradient
from ....kernels.layers.row_norm import (
    layer_norm_forward,
    rms_norm_forward,
    row_norm_error,
    row_norm_gradient,
)
from ...common import Finite, Positive, PositiveFinite
from ..onnx_nodes import Arrays, Export, Form
from ..operation import Arithmetic, SfuOperation, SfuRows, SfuStep
from ..shape import Shape
from ..unit import (
    NORMAL_DEVIATION,
    Data,
    Inputs,
    Made,
    Site,
    State,
    Training,
    Unit,
    Weights,
)
from .moves import Unflatten
from .sequence import OneStep, sequence_shape

if TYPE_CHECKING:
    from ..onnx_graph import OnnxNode, Value, Walk


class RowOperation(SfuOperation):
    """An operation on each row of a sequence by itself."""

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        return inputs[0]


def _is_by_channels(walk: Walk, value: Value) -> bool:
    """Return whether the values of a sample lie channel by channel, and row by row in each."""
    from ..onnx_graph import MAPS

    layout = walk.layout(value)
    return value.axes is None and [*layout] == sorted(layout, key=MAPS.index)


class _RowNorm(RowOperation):
    """Normalisation of each pixel's channels; `onnx_arrays` are its arrays, in the order of ONNX's
    inputs.
    """

    onnx_arrays: ClassVar[tuple[str, ...]]
    torch_form, torch_names = "last", {"scale": "weight", "shift": "bias"}
    keeps_map = True
    epsilon: float
    offset: float

    @property
    def learnt(self) -> tuple[str, ...]:
        """The names of the arrays that are learnt."""
        return self.onnx_arrays

    def parameters(self, made: Shape) -> int:
        """See `SfuOperation`; each channel has a number of each array."""
        return made[0] * len(self.learnt)

    def arithmetic(self, shape: Shape, made: Shape) -> Arithmetic:
        """See `SfuOperation`; with a root and a division for each pixel."""
        of_values, pixels = super().arithmetic(shape, made), made[1] * made[2]
        return of_values._replace(divisions=2 * pixels)

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`; of layer norm, what is 1 or 0 in the graph is not learnt.

        Raises:
            InputError: it normalises other axes than channels.
        """
        given = dict(zip(cls.onnx_arrays, (1, 2), strict=False))
        value = walk.take(node)
        if node.integer("axis", -1) in (-1, len(walk.axes_of(value)) - 1):
            value = walk.with_channels(node, value, -1)
        places = {
            name: place
            for name, place in given.items()
            if node.has_input(place) and not (hasattr(cls, name) and _is_neutral(walk, node, place))
        }
        sizes = [walk.weight(node, place) for place in places.values()]
        if not sizes and (neutral := walk.constant(node, 1)) is not None:
            sizes = [neutral.shape]
        axes, shape, whole = walk.axes_of(value), walk.shape(value), value
        axis = node.integer("axis", -1) % len(axes)
        if shape is not None and axis == 1 and _is_by_channels(walk, value) and shape[1:] != (1, 1):
            # All values of a sample, which become channels for it.
            row = Unflatten(shape=(math.prod(shape), 1, 1))
            value = walk.step(node, Unflatten, dataclasses.asdict(row), value, is_flat=True)
            axes, shape, axis = walk.axes_of(value), row.shape, 1
            sizes = [(math.prod(own),) for own in sizes]
        is_row = value.is_flat and shape is not None and shape[1:] == (1, 1)
        if not (axes[-1] == "channels" or is_row) or axis != len(axes) - 1 or len(sizes[0]) != 1:
            raise node.refusal(
                f"normalises other axes than the last one, channels, of {walk.shown_axes(value)}"
            )
        walk.expect(node, value, channels=sizes[0][0])
        keys: dict[str, object] = {"epsilon": node.number("epsilon", 1e-5)}
        keys |= dict.fromkeys((name for name in given if name not in places), False)
        if offset := node.number("offset", 0.0):
            keys["offset"] = offset
        arrays = {name: node.inputs[place] for name, place in places.items()}
        made = walk.step(node, cls, keys, value, like=value, arrays=arrays)
        if value is whole or whole.is_flat:
            return made
        return walk.step(node, Unflatten, {"shape": walk.shape(whole)}, made, like=whole)

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

    def _factor(self, out: Export) -> str:
        """Write what a norm's result is multiplied by; return its name."""
        scale = out.weight("scale")
        if not self.offset:
            return scale
        numbers = [scale, out.number("offset", self.offset)]
        return out.nodes.add("Add", numbers, f"{out.name}/factor")

    @abc.abstractmethod
    def _written(self, out: Export, x: str, made: str) -> str:
        """Write the nodes that normalise the last axis of x; return the name of their result,
        `made`.
        """


def _is_neutral(walk: Walk, node: OnnxNode, place: int) -> bool:
    """Return whether a node's scale is 1, or its shift 0, by no array of the file."""
    constant = walk.constant(node, place)
    if constant is None or constant.roots:
        return False
    return bool((walk.expressions.value(constant.name) == 2 - place).all())


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerNorm(_RowNorm):
    """Each pixel's channels less their mean, over their standard deviation, scaled and shifted (Ba
    et al., 2016).

    It learns what of scale and shift is true; values are multiplied by `offset` plus the scale.
    """

    epsilon: PositiveFinite = 1e-5
    scale: bool = True
    shift: bool = True
    offset: Finite = 0.0

    type = "layer-norm"
    of_value = Arithmetic(10)  # two sums, normal, result; back: two sums, dx by two, two gradients
    onnx, onnx_arrays = ("LayerNormalization",), ("scale", "shift")

    def __post_init__(self) -> None:
        if not self.scale and (self.shift or self.offset):
            raise ValueError("`scale` = false goes with `shift` = false, and with no `offset`")

    @property
    def learnt(self) -> tuple[str, ...]:
        """See `_RowNorm`."""
        return tuple(name for name in self.onnx_arrays if getattr(self, name))

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`."""
        import torch

        norm, keys = self, {"elementwise_affine": self.scale, "bias": self.shift}

        class LayerNorm(nn.LayerNorm):
            def forward(self, x: Any) -> Any:
                if not norm.offset:
                    return super().forward(x)
                factor, shift = self.weight + norm.offset, self.bias
                return torch.nn.functional.layer_norm(x, factor.shape, factor, shift, norm.epsilon)

        return LayerNorm(shape[0], self.epsilon, **keys)

    def unit(self, step: SfuStep, site: Site) -> Unit:
        """See `SfuOperation`."""
        return LayerNormUnit(self, step.output[0], site)

    def _written(self, out: Export, x: str, made: str) -> str:
        if not self.scale:
            from onnx.numpy_helper import from_array

            sizes, one = out.nodes.numbers(f"{out.name}.channels", out.reads[0].shape[0]), [1.0]
            value = from_array(np.array(one, np.float32))
            arrays = [out.nodes.add("ConstantOfShape", [sizes], f"{out.name}/scale", value=value)]
        else:
            arrays = [self._factor(out), *([out.weight("shift")] if self.shift else [])]
        return out.nodes.add(
            "LayerNormalization", [x, *arrays], made, out.name, axis=-1, epsilon=self.epsilon
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RmsNorm(_RowNorm):
    """Each pixel's channels over the root of their mean square, scaled (Zhang and Sennrich,
    2019): multiplied by `offset` plus the scale.
    """

    epsilon: PositiveFinite = 1e-5
    offset: Finite = 0.0

    type = "rms-norm"
    of_value = Arithmetic(7)  # a sum, normal, result; back: a sum, dx by two, a gradient
    onnx, onnx_arrays = ("RMSNormalization",), ("scale",)

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`."""
        import torch

        norm = self

        class RMSNorm(nn.RMSNorm):
            def forward(self, x: Any) -> Any:
                if not norm.offset:
                    return super().forward(x)
                factor = self.weight + norm.offset
                return torch.nn.functional.rms_norm(x, factor.shape, factor, norm.epsilon)

        return RMSNorm(shape[0], self.epsilon)

    def unit(self, step: SfuStep, site: Site) -> Unit:
        """See `SfuOperation`."""
        return RmsNormUnit(self, step.output[0], site)

    def _written(self, out: Export, x: str, made: str) -> str:
        nodes, name = out.nodes, out.name
        square = nodes.add("Mul", [x, x], f"{name}/square")
        mean = nodes.add("ReduceMean", [square], f"{name}/mean", axes=[-1], keepdims=1)
        above_0 = nodes.add("Add", [mean, out.number("epsilon", self.epsilon)], f"{name}/above_0")
        root = nodes.add("Sqrt", [above_0], f"{name}/root")
        quotient = nodes.add("Div", [x, root], f"{name}/quotient")
        return nodes.add("Mul", [quotient, self._factor(out)], made, name)


class _RowNormUnit(Unit):
    """Normalisation of each pixel's channels; it keeps its inputs, and two numbers for each
    pixel. One that is `centred` takes the mean off.
    """

    centred: ClassVar[bool]

    def __init__(self, norm: LayerNorm | RmsNorm, channels: int, site: Site) -> None:
        super().__init__(site)
        self._epsilon, self._offset = norm.epsilon, np.float32(norm.offset)
        self._neutral = {
            name: np.full(channels, number, np.float32)
            for name, number in zip(norm.onnx_arrays, (1, 0), strict=False)
        }
        self.learns = {
            name: own - self._offset * (name == "scale")
            for name, own in self._neutral.items()
            if name in norm.learnt
        }

    def _factors(self, weights: Weights) -> Weights:
        """Return what the normal values are multiplied by, and what is added."""
        own = {**self._neutral, **weights}
        return own if not self._offset else {**own, "scale": own["scale"] + self._offset}

    def forward(self, xs: Inputs, weights: Weights, training: Training | None) -> Made:
        """See `Unit`."""
        [x] = xs
        y, statistics = self.arena.take(x.shape), self.arena.take((*x.shape[:3], 2))
        self._normalise(x, y, statistics, self._factors(weights))
        return y, (x, statistics)

    @abc.abstractmethod
    def _normalise(self, x: Data, y: Data, statistics: Data, weights: Weights) -> None:
        """Write the result for x to y, and the two numbers of each pixel."""

    def backward(self, state: State, dz: Data, weights: Weights) -> Inputs:
        """See `Unit`."""
        x, statistics = state
        dx = self.arena.take(dz.shape)
        scale = self._factors(weights)["scale"]
        row_norm_error(x, statistics, scale, dz, dx, centred=self.centred)
        return (dx,)

    def kept(self, state: State, dz: Data) -> State:
        """See `Unit`."""
        return *state, dz

    def gradient(self, kept: State, sums: Weights, *, fresh: bool) -> None:
        """See `Unit`."""
        x, statistics, dz = kept
        scale, shift = sums["scale"], sums.get("shift")
        row_norm_gradient(x, statistics, dz, scale, shift, fresh=fresh)


class LayerNormUnit(_RowNormUnit):
    """Layer normalisation."""

    centred = True

    def _normalise(self, x: Data, y: Data, statistics: Data, weights: Weights) -> None:
        layer_norm_forward(
            x, y, statistics, weights["scale"], weights["shift"], epsilon=self._epsilon
        )


class RmsNormUnit(_RowNormUnit):
    """RMS normalisation."""

    centred = False

    def _normalise(self, x: Data, y: Data, statistics: Data, weights: Weights) -> None:
        rms_norm_forward(x, y, statistics, weights["scale"], epsilon=self._epsilon)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Positions(RowOperation):
    """A learnt value for each row and channel, added."""

    type = "positions"
    torch_form = "rows"

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`."""
        import torch

        class Positions(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                all_rows = NORMAL_DEVIATION * torch.randn(shape[1], shape[0])
                self.positions = nn.Parameter(all_rows)

            def forward(self, x: Any) -> Any:
                return x + self.positions

        return Positions()

    @classmethod
    def from_arrays(cls, node: OnnxNode, arrays: Arrays) -> Arrays:
        """See `Operation`; positions may be repeated for samples."""
        return {key: own.reshape(-1, *own.shape[-2:])[0].ravel() for key, own in arrays.items()}

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
        out.write_of(
            [steps],
            "Add",
            out.weight("positions", lambda all: all.reshape(rows, channels)),
            form=Form.STEPS,
        )

    def unit(self, step: SfuStep, site: Site) -> Unit:
        """See `SfuOperation`."""
        return PositionsUnit(step.output, site)


class PositionsUnit(Unit):
    """A value for each row and channel, in one row: those of row 0, then of row 1, and so on."""

    def __init__(self, shape: Shape, site: Site) -> None:
        super().__init__(site)
        self.learns = {"positions": site.drawn(math.prod(shape))}

    def forward(self, xs: Inputs, weights: Weights, training: Training | None) -> Made:
        """See `Unit`."""
        [x] = xs
        y = self.arena.take(x.shape)
        np.add(x, weights["positions"].reshape(x.shape[1:]), out=y)
        return y, ()

    def backward(self, state: State, dz: Data, weights: Weights) -> Inputs:
        """See `Unit`; what is before it may overwrite its errors, which it keeps."""
        dx = self.arena.take(dz.shape)
        dx[...] = dz
        return (dx,)

    def kept(self, state: State, dz: Data) -> State:
        """See `Unit`."""
        return (dz,)

    def gradient(self, kept: State, sums: Weights, *, fresh: bool) -> None:
        """See `Unit`."""
        [dz] = kept
        # As if all rows and channels were channels of one pixel, their sums are those of a bias.
        rows = np.ascontiguousarray(dz).reshape(len(dz), 1, 1, -1)
        add_bias_gradient(sums["positions"], rows, fresh=fresh)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tokens(SfuOperation):
    """The pixels of a map, row by row, as rows of a sequence; with `class_token`, a learnt row
    before them, or as many as `class_tokens` (Touvron et al., 2021).
    """

    class_token: bool = False
    class_tokens: Positive = 1

    type = "tokens"

    def __post_init__(self) -> None:
        if self.class_tokens > 1 and not self.class_token:
            raise ValueError(f"`class_tokens` = {self.class_tokens} goes with `class_token` = true")

    @property
    def before(self) -> int:
        """Rows before the pixels."""
        return self.class_tokens * self.class_token

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`; maps become (samples, tokens, values)."""
        import torch

        before = self.before

        class Tokens(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                if before:
                    rows = NORMAL_DEVIATION * torch.randn(1, before, shape[0])
                    self.class_token = nn.Parameter(rows)

            def forward(self, x: Any) -> Any:
                rows = x.flatten(2).transpose(1, 2)
                if not before:
                    return rows
                return torch.cat([self.class_token.expand(len(x), -1, -1), rows], 1)

        return Tokens()

    @classmethod
    def from_arrays(cls, node: OnnxNode, arrays: Arrays) -> Arrays:
        """See `Operation`; a class token may be repeated for samples."""
        return {
            key: token.reshape(-1, *token.shape[-2:])[0].ravel() for key, token in arrays.items()
        }

    def parameters(self, made: Shape) -> int:
        """See `SfuOperation`."""
        return made[0] * self.before

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        [(channels, rows, columns)] = inputs
        return channels, rows * columns + self.before, 1

    def rows(self, shape: Shape, made: Shape) -> SfuRows:
        """See `SfuOperation`; the class token waits for nothing that later tokens do not wait
        for.
        """
        _, rows, columns = shape
        forward = np.repeat(np.arange(rows), columns)
        forward = np.concatenate([np.zeros(self.before, np.int64), forward])
        # A row of the map's errors is whole with the token of its last pixel.
        return SfuRows(forward, np.arange(1, rows + 1) * columns - 1 + self.before)

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
            token = out.weight("class_token", lambda token: token.reshape(1, -1, channels))
            sizes = nodes.add("Shape", [steps], f"{name}/sizes")
            ends = nodes.numbers(f"{name}.0", 0), nodes.numbers(f"{name}.1", 1)
            samples = nodes.add("Slice", [sizes, *ends], f"{name}/samples")
            shape = nodes.add(
                "Concat",
                [samples, nodes.numbers(f"{name}.token", self.before, channels)],
                f"{name}/shape",
                axis=0,
            )
            before = nodes.add("Expand", [token, shape], f"{name}/before")
            steps = nodes.add("Concat", [before, steps], out.result, name, axis=1)
        nodes.name(out.makes, steps, Form.STEPS)

    def unit(self, step: SfuStep, site: Site) -> Unit:
        """See `SfuOperation`."""
        return TokensUnit(step.input, site, before=self.before)


class TokensUnit(Unit):
    """Pixels as rows, and perhaps class tokens before them."""

    def __init__(self, shape: Shape, site: Site, *, before: int) -> None:
        super().__init__(site)
        self._shape, self._before = shape, before
        self.learns = {"class_token": site.drawn(before * shape[0])} if before else {}

    def forward(self, xs: Inputs, weights: Weights, training: Training | None) -> Made:
        """See `Unit`."""
        [x] = xs
        channels, rows, columns = self._shape
        y = self.arena.take((len(x), rows * columns + self._before, 1, channels))
        y[:, self._before :] = x.reshape(len(x), rows * columns, 1, channels)
        if self._before:
            y[:, : self._before, 0] = weights["class_token"].reshape(self._before, channels)
        return y, ()

    def backward(self, state: State, dz: Data, weights: Weights) -> Inputs:
        """See `Unit`."""
        channels, rows, columns = self._shape
        dx = self.arena.take((len(dz), rows, columns, channels))
        dx[...] = dz[:, self._before :].reshape(dx.shape)
        return (dx,)

    def kept(self, state: State, dz: Data) -> State:
        """See `Unit`."""
        # PG needs the rows of class tokens alone, as channels of one pixel.
        return (np.ascontiguousarray(dz[:, : self._before]).reshape(len(dz), 1, 1, -1),)

    def gradient(self, kept: State, sums: Weights, *, fresh: bool) -> None:
        """See `Unit`."""
        add_bias_gradient(sums["class_token"], *kept, fresh=fresh)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FirstStep(OneStep):
    """The first row of a sequence, such as that of a class token."""

    type = "first-step"
    place, row = 0, "token"

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`; takes (samples, steps, values)."""

        class First(nn.Module):
            def forward(self, x: Any) -> Any:
                return x[:, 0]

        return First()
