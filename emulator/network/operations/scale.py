"""Factors and terms: a learnt one for each channel, of negative values alone, too, and constant ones
for all values.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ....kernels.layers.element_wise import add_bias_gradient
from ....kernels.layers.scale import scale_gradient, total_gradient
from ...common import Finite, InputError
from ..onnx_nodes import Arrays, Export, Form
from ..operation import Arithmetic, SfuOperation, SfuStep
from ..shape import Shape
from ..unit import Data, Inputs, Made, Site, State, Training, Unit, Weights

if TYPE_CHECKING:
    from ..onnx_graph import Constant, OnnxNode, Value, Walk


class _ByChannel(SfuOperation):
    """The base of what has a learnt number for each channel."""

    by_channel = True
    _array: ClassVar[str]
    _operator: ClassVar[str]

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        return inputs[0]

    @classmethod
    def from_arrays(cls, node: OnnxNode, arrays: Arrays) -> Arrays:
        """See `Operation`; of numbers that are repeated, the first ones."""
        made = {}
        for key, array in arrays.items():
            count = array.shape[-1] if array.shape[-1:] > (1,) else array.size
            made[key] = array.reshape(-1)[:count]
        return made

    def parameters(self, made: Shape) -> int:
        """See `SfuOperation`; one for each channel."""
        return made[0]

    def to_onnx(self, out: Export) -> None:
        """See `Operation`."""
        count, form = self.parameters(out.makes.shape), out.form
        if form is Form.ROW and out.makes.shape[1:] != (1, 1) and self.by_channel:
            raise out.refusal(f"{self.type} on {form.value} ({out.layer})")
        sizes = (count, 1, 1) if form is Form.MAPS else (count,)
        out.write(self._operator, out.weight(self._array, lambda own: own.reshape(sizes)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scale(_ByChannel):
    """Each channel times a learnt factor, `initial` at first: LayerScale (Touvron et al., 2021)."""

    initial: Finite = 1.0

    keeps_map = True
    type = "scale"
    torch_names: ClassVar[Mapping[str, str]] = {"scale": "weight"}
    of_value = Arithmetic(3)  # the product; back: dx and the gradient
    _array, _operator = "scale", "Mul"

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`."""
        import torch

        channels, initial = shape[0], self.initial

        class Scale(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.weight = nn.Parameter(torch.full((channels,), initial))

            def forward(self, x: Any) -> Any:
                return x * self.weight[:, None, None]

        return Scale()

    def unit(self, step: SfuStep, site: Site) -> Unit:
        """See `SfuOperation`."""
        return ScaleUnit(step.output[0], self.initial, site)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PRelu(_ByChannel):
    """x where it is above 0, else x times a learnt slope of its channel, `initial` at first, or one
    of all channels, which is `shared` (He et al., 2015, section 2.1).

    The gradient of a shared slope is a sum over all channels, so it is where these come together.
    """

    initial: Finite = 0.25
    shared: bool = False

    keeps_map = True
    type = "prelu"
    torch_names: ClassVar[Mapping[str, str]] = {"slope": "weight"}
    of_value = Arithmetic(3)  # the product; back: dx and the gradient
    onnx = ("PRelu",)
    _array, _operator = "slope", "PRelu"

    @property
    def by_channel(self) -> bool:  # type: ignore[override]  # one number of each, or of all
        """See `SfuOperation`."""
        return not self.shared

    def resolved(self, inputs: Sequence[Shape]) -> SfuOperation:
        """See `SfuOperation`; of one channel the slope is its own."""
        return dataclasses.replace(self, shared=self.shared and inputs[0][0] > 1)

    def parameters(self, made: Shape) -> int:
        """See `SfuOperation`."""
        return 1 if self.shared else made[0]

    @property
    def he_gain(self) -> float:
        """2 / (1 + slope^2) (He et al., 2015, equation 15)."""
        return 2 / (1 + self.initial**2)

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`."""
        return nn.PReLU(1 if self.shared else shape[0], self.initial)

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`.

        Raises:
            InputError: it has other than one slope for each channel, or for all.
        """
        value, slopes = walk.take(node), walk.constant(node, 1)
        made = None if slopes is None else by_channel(walk, node, cls, value, slopes)
        if made is not None:
            return made
        if slopes is None or not slopes.roots or math.prod(slopes.shape) != 1:
            raise node.refusal("has other than one slope for each channel, or one for all")
        walk.parameters.use(node, 1, slopes)
        arrays = {cls._array: node.inputs[1]}
        return walk.step(node, cls, {"shared": True}, value, like=value, arrays=arrays)

    def unit(self, step: SfuStep, site: Site) -> Unit:
        """See `SfuOperation`."""
        return PReluUnit(self.parameters(step.output), self.initial, site)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shift(_ByChannel):
    """A learnt term for each channel, added: such as the row of a table that all tokens share.

    One that a file takes off, as means in a norm that is spelt out, is its negative here.
    """

    type = "shift"
    torch_names: ClassVar[Mapping[str, str]] = {"shift": "bias"}
    _array, _operator = "shift", "Add"

    @classmethod
    def from_arrays(cls, node: OnnxNode, arrays: Arrays) -> Arrays:
        """See `Operation`.

        Raises:
            InputError: what is taken off is places of the numbers of a model's tensor, which is to
                get its trained numbers back.
        """
        own = super().from_arrays(node, arrays)
        if node.operator != "Sub":
            return own
        if any(array.dtype.kind == "i" for array in own.values()):
            raise node.refusal("takes off an array that is learnt; add it instead")
        return {key: -array for key, array in own.items()}

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`."""
        import torch

        channels = shape[0]

        class Shift(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.bias = nn.Parameter(torch.zeros(channels))

            def forward(self, x: Any) -> Any:
                return x + self.bias[:, None, None]

        return Shift()

    def unit(self, step: SfuStep, site: Site) -> Unit:
        """See `SfuOperation`."""
        return ShiftUnit(step.output[0], site)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Affine(SfuOperation):
    """`factor` times x plus `shift`: constants, which are not learnt."""

    factor: Finite = 1.0
    shift: Finite = 0.0

    by_channel = True
    type = "affine"
    of_value = Arithmetic(2)  # forward, and back
    onnx = ("Div", "Neg")

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        return inputs[0]

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`.

        Raises:
            InputError: it divides by other than a number.
        """
        if node.operator == "Neg":
            return scaled(walk, node, 0, -1.0)
        number = number_of(walk.constant(node, 1))
        if not number or node.inputs[0] in walk.constants:
            raise node.refusal("divides by other than one number, which is not supported")
        return scaled(walk, node, 0, 1 / number)

    def to_onnx(self, out: Export) -> None:
        """See `Operation`."""
        x, form = out.taken, out.form
        if self.shift and self.factor != 1:
            product = out.nodes.add(
                "Mul", [*x, out.number("factor", self.factor)], f"{out.name}/product"
            )
            out.write_of([product], "Add", out.number("shift", self.shift), form=form)
        elif self.shift:
            out.write("Add", out.number("shift", self.shift))
        else:
            out.write("Mul", out.number("factor", self.factor))

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`."""
        factor, shift = self.factor, self.shift

        class Affine(nn.Module):
            def forward(self, x: Any) -> Any:
                return factor * x + shift

        return Affine()


def number_of(constant: Constant | None) -> float | None:
    """Return the one number that a constant is; None for an array of the file, even of one number:
    that may be learnt.
    """
    if constant is None or constant.numbers is None or len(constant.numbers) != 1:
        return None
    return float(constant.numbers[0]) if constant.shape == () or not constant.roots else None


def scaled(walk: Walk, node: OnnxNode, place: int, factor: float, shift: float = 0.0) -> Value:
    """Return what a node takes at a place, times a number, plus another one: in one operation with
    those before, if nothing else takes their result.
    """
    value = walk.take(node, place)
    if factor == 1 and shift == 0:
        return value
    step = walk.step_of(value)
    if step is not None and step.kind is Affine and walk.is_used_once(node.inputs[place]):
        own: Any = step.keys
        walk.replace(
            value.step,
            keys={"factor": own["factor"] * factor, "shift": own["shift"] * factor + shift},
        )
        return value
    return walk.step(node, Affine, {"factor": factor, "shift": shift}, value, like=value)


def _sizes_by_channel(walk: Walk, value: Value) -> tuple[int, ...] | None:
    """Return the shape of an array of one number for each channel of a value; None where the value
    has no such axis, or one that is not known.
    """
    axes, shape = walk.axes_of(value), walk.shape(value)
    if shape is None or (value.is_flat and shape[1:] != (1, 1)):
        return None
    is_channel = [axis in ("channels", "values") for axis in axes]
    if is_channel.count(True) != 1:
        return None
    return tuple(shape[0] if own else 1 for own in is_channel)


def facing(walk: Walk, node: OnnxNode, value: Value, constant: Constant) -> Value:
    """Return a sequence with its channels along the last axis of a learnt array that has more than
    one number along it; any other value as it is.
    """
    sizes, own = walk.sizes(value), constant.shape[-3:]
    place = max((n for n in range(-len(own), 0) if own[n] > 1), default=0)
    if place == 0 or len(sizes) != 3 or not constant.roots or own[place] != sizes[place]:
        return value
    return walk.with_channels(node, value, place)


def is_by_channel(walk: Walk, value: Value, constant: Constant) -> bool:
    """Return whether an array of the file is one number for each channel of a value."""
    sizes = _sizes_by_channel(walk, value)
    if sizes is None or not constant.roots:
        return False
    return (1,) * (len(sizes) - len(constant.shape)) + constant.shape == sizes


def _repeats_channels(walk: Walk, value: Value, constant: Constant) -> bool:
    """Return whether an array repeats a number for each channel, the last axis, for samples and
    rows.
    """
    sizes = _sizes_by_channel(walk, value)
    if sizes is None or not constant.roots or sizes[-1] <= 1 or len(constant.shape) > len(sizes):
        return False
    if is_by_channel(walk, value, constant) or constant.shape[-1:] != sizes[-1:]:
        return False
    try:
        rows = walk.expressions.value(constant.name).reshape(-1, sizes[-1])
    except (KeyError, InputError):
        return False
    begins_at_zero = bool((rows == rows[0, 0]).all())  # as positions may
    return bool((rows == rows[:1]).all()) and not begins_at_zero


def by_channel(
    walk: Walk,
    node: OnnxNode,
    kind: type[PRelu | Scale | Shift],
    value: Value,
    constant: Constant,
    *,
    spread: bool = False,
) -> Value | None:
    """Return a value whose channels have a number each of an array, which is learnt; None if that
    is not one for each channel.

    With `spread`, only an array that repeats them for samples and rows, as the looked-up types of
    tokens that all have the same type.
    """
    value = value if spread else facing(walk, node, value, constant)
    fits = _repeats_channels if spread else is_by_channel
    if not fits(walk, value, constant):
        return None
    place = next(n for n, name in enumerate(node.inputs) if name in walk.constants)
    walk.parameters.use(node, place, constant)
    keys = {"initial": 1.0} if kind is Scale else {}
    return walk.step(node, kind, keys, value, like=value, arrays={kind._array: node.inputs[place]})


class ScaleUnit(Unit):
    """Each channel times a learnt factor; it keeps its inputs."""

    def __init__(self, channels: int, initial: float, site: Site) -> None:
        super().__init__(site)
        self.learns = {"scale": np.full(channels, initial, np.float32)}

    def forward(self, xs: Inputs, weights: Weights, training: Training | None) -> Made:
        """See `Unit`."""
        [x] = xs
        y = self.arena.take(x.shape)
        np.multiply(x, weights["scale"], out=y)
        return y, (x,)

    def backward(self, state: State, dz: Data, weights: Weights) -> Inputs:
        """See `Unit`."""
        dx = self.arena.take(dz.shape)
        np.multiply(dz, weights["scale"], out=dx)
        return (dx,)

    def kept(self, state: State, dz: Data) -> State:
        """See `Unit`."""
        return *state, dz

    def gradient(self, kept: State, sums: Weights, *, fresh: bool) -> None:
        """See `Unit`."""
        x, dz = kept
        scale_gradient(x, dz, sums["scale"], fresh=fresh)


class PReluUnit(Unit):
    """Learnt slopes of negative values, of each channel or one of all; it keeps its inputs."""

    def __init__(self, slopes: int, initial: float, site: Site) -> None:
        super().__init__(site)
        self.learns = {"slope": np.full(slopes, initial, np.float32)}

    def forward(self, xs: Inputs, weights: Weights, training: Training | None) -> Made:
        """See `Unit`."""
        [x] = xs
        return self._sloped(x, x, weights), (x,)

    def backward(self, state: State, dz: Data, weights: Weights) -> Inputs:
        """See `Unit`."""
        return (self._sloped(dz, state[0], weights),)

    def _sloped(self, values: Data, x: Data, weights: Weights) -> Data:
        """Return values where x is above 0, and others times the slopes."""
        made = self.arena.take(values.shape)
        np.multiply(values, weights["slope"], out=made)
        np.copyto(made, values, where=x > 0)
        return made

    def kept(self, state: State, dz: Data) -> State:
        """See `Unit`."""
        return *state, dz

    def gradient(self, kept: State, sums: Weights, *, fresh: bool) -> None:
        """See `Unit`."""
        x, dz = kept
        below = self.arena.take(x.shape)
        np.minimum(x, 0, out=below)
        sum_of = scale_gradient if sums["slope"].shape == x.shape[3:] else total_gradient
        sum_of(below, dz, sums["slope"], fresh=fresh)


class ShiftUnit(Unit):
    """A learnt term for each channel."""

    def __init__(self, channels: int, site: Site) -> None:
        super().__init__(site)
        self.learns = {"shift": np.zeros(channels, np.float32)}

    def forward(self, xs: Inputs, weights: Weights, training: Training | None) -> Made:
        """See `Unit`."""
        [x] = xs
        y = self.arena.take(x.shape)
        np.add(x, weights["shift"], out=y)
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
        add_bias_gradient(sums["shift"], dz, fresh=fresh)
