"""Operations that end shortcuts and branches: addition, multiplication and concatenation; and
channels that begin one.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ....kernels.layers.scale import gate_error
from ...common import NotNegative, Positive
from ..onnx_nodes import Export, Form
from ..operation import Arithmetic, JoinedRows, SfuOperation, SfuRows, SfuStep
from ..shape import Shape, shown
from ..unit import Data, Inputs, Made, Site, State, Training, Unit, Weights
from .rotary import Sinusoids
from .scale import Affine, Shift, by_channel, facing, is_by_channel, number_of, scaled
from .tokens import Positions, Tokens

if TYPE_CHECKING:
    from ..onnx_graph import Constant, OnnxNode, Value, Walk


def _taken(walk: Walk, node: OnnxNode, *, spread: bool = False) -> list[Value]:
    """Return what a node takes, aligned."""
    places = range(max(1, len(node.inputs)))
    return _aligned(walk, node, [walk.take(node, place, spread=spread) for place in places])


def _aligned(walk: Walk, node: OnnxNode, values: list[Value]) -> list[Value]:
    """Return sequences with their axes in one order: channels last, if one of them has them so."""
    orders = [axes for axes in map(walk.axes_of, values) if len(axes) == 3 and "channels" in axes]
    place = max((axes.index("channels") for axes in orders), default=0)
    if len({*orders}) < 2 or len(orders) < len(values):
        return values
    return [walk.with_channels(node, value, place) for value in values]


def _join(
    walk: Walk, node: OnnxNode, kind: type[SfuOperation], values: Sequence[Value], **keys: str
) -> Value:
    first, *others = values
    if any(other.is_flat != first.is_flat for other in others):
        raise node.refusal("joins maps and values that were flattened")
    if any(walk.axes_of(other) != walk.axes_of(first) for other in others):
        raise node.refusal(f"joins values with other axes than {walk.shown_axes(first)}")
    return walk.step(node, kind, keys, first, *others, like=first) if others else first


def _are_tokens(walk: Walk, tokens: Constant, channels: int) -> bool:
    """Return whether an array is rows of this many channels, the same for all samples, be they
    repeated for these.
    """
    if len(tokens.shape) != 3 or tokens.shape[0] not in (1, walk.batch or 1):
        return False
    return tokens.shape[2] == channels and tokens.shape[1] >= 1 and _is_one(walk, tokens)


def _is_one(walk: Walk, array: Constant) -> bool:
    """Return whether an array is one for all samples, be it repeated for them."""
    if array.shape[0] == 1:
        return True
    own = walk.expressions.value(array.name)
    return bool((own == own[:1]).all())


def _are_positions(walk: Walk, value: Value, constant: Constant) -> bool:
    """Return whether a constant has a number for each row and channel of a sequence, be it repeated
    for samples.
    """
    sizes, shape = walk.sizes(value), walk.shape(value)
    if shape is None or walk.axes_of(value) != ("samples", "rows", "channels") or shape[1] == 1:
        return False
    if constant.shape[-2:] != sizes[1:] or len(constant.shape) not in (2, 3):
        return False
    return constant.shape[:-2] in ((), (1,)) or (
        constant.shape[0] == walk.batch and _is_one(walk, constant)
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Add(SfuOperation):
    """The sum of maps of one shape: where a shortcut ends."""

    type = "add"
    joins = True
    onnx = ("Add", "Sub", "Sum")

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        if any(shape != inputs[0] for shape in inputs):
            raise ValueError(
                f"adds maps of one shape, but these are {' and '.join(map(shown, inputs))}"
            )
        return inputs[0]

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`; a constant that is added is a number, the bias after a MatMul, or of
        each channel, or of each row and channel.

        Raises:
            InputError: another constant is added, or maps are added to flattened values.
        """
        if node.operator == "Sub":
            return cls._difference(walk, node)
        if len(node.inputs) == 2 and sum(name in walk.constants for name in node.inputs) == 1:
            return cls._bias(walk, node)
        values = _taken(walk, node)
        made = _join(walk, node, cls, values)
        if not walk.are_alike(*values):
            raise node.refusal(
                "adds rows of values that lie in different orders, as flattened before and after"
                " Transpose"
            )
        return made

    def to_onnx(self, out: Export) -> None:
        """See `Operation`."""
        out.write("Add")

    def unit(self, step: SfuStep, site: Site) -> Unit:
        """See `SfuOperation`."""
        return AddUnit(len(step.reads), site)

    @classmethod
    def _difference(cls, walk: Walk, node: OnnxNode) -> Value:
        """Return a sum with what is taken off, times -1."""
        constants = [name in walk.constants for name in node.inputs]
        if any(constants):
            taken_off = walk.constants[node.inputs[constants.index(True)]]
            number = number_of(taken_off)
            if number is None:
                value = walk.take(node, constants.index(False))
                made = None if constants[0] else by_channel(walk, node, Shift, value, taken_off)
                if made is None:
                    raise node.refusal(
                        "takes off an array of the file; only one number, one for each channel, or"
                        " other maps, are supported"
                    )
                return made
            signs = (-1.0, number) if constants[0] else (1.0, -number)
            return scaled(walk, node, constants.index(False), *signs)
        one, other = _aligned(walk, node, [walk.take(node), scaled(walk, node, 1, -1.0)])
        if not walk.are_alike(one, other):
            raise node.refusal(f"takes values with other axes off {walk.shown_axes(one)}")
        return walk.step(node, cls, {}, one, other, like=one)

    @classmethod
    def _positions(cls, walk: Walk, node: OnnxNode, place: int, positions: Constant) -> Value:
        """Return what a node takes at a place plus learnt positions; of a multiple of these, the
        same multiple of the sum with the others. A table of sines and cosines times one learnt
        number is `sinusoids`.
        """
        for own, table in itertools.permutations(walk.expressions.factors(positions.name), 2):
            learnt, angles = walk.constants[own], walk.constants[table]
            if math.prod(learnt.shape) == 1 and learnt.roots and not learnt.is_buffer:
                keys = Sinusoids.keys_of(walk.expressions.value(angles.name))
                if keys is not None:
                    walk.parameters.use(node, 1 - place, learnt)
                    arrays, given = {"factor": own}, walk.take(node, place)
                    return walk.step(node, Sinusoids, keys, given, like=given, arrays=arrays)
        name, factor = walk.expressions.multiple(positions.name)
        value = scaled(walk, node, place, 1 / factor)
        walk.parameters.use(node, 1 - place, walk.constants[name])
        made = walk.step(node, Positions, {}, value, like=value, arrays={"positions": name})
        if factor == 1:
            return made
        return walk.step(node, Affine, {"factor": factor, "shift": 0.0}, made, like=made)

    @classmethod
    def _bias(cls, walk: Walk, node: OnnxNode) -> Value:
        [place] = [n for n, name in enumerate(node.inputs) if name not in walk.constants]
        value, bias = walk.take(node, place), walk.constants[node.inputs[1 - place]]
        if (number := number_of(bias)) is not None:
            return scaled(walk, node, place, 1.0, number)
        value = facing(walk, node, value, bias)
        if bias.is_buffer and len(bias.shape) < 3 and walk.holds_zeros(bias):
            return value  # as biases of logits that no model trains (BART)
        layer, is_used_once = walk.step_of(value), walk.is_used_once(node.inputs[place])
        lacks_bias = layer is not None and not layer.keys.get("bias", True)
        operator = layer.node.operator if layer is not None and lacks_bias else ""
        by_conv = operator in ("Conv", "ConvTranspose") and is_used_once
        if layer is None or not (by_conv and is_by_channel(walk, value, bias)):
            if (made := by_channel(walk, node, Shift, value, bias, spread=True)) is not None:
                return made
            if _are_positions(walk, value, bias):
                return cls._positions(walk, node, place, bias)
            if layer is None or operator != "MatMul":
                if (made := by_channel(walk, node, Shift, value, bias)) is not None:
                    return made
                raise node.refusal(
                    "adds a constant; only one number, one for each channel, the bias after a"
                    " MatMul, and positions of a sequence's rows and channels, are supported"
                )
            outputs = layer.keys.get("features", layer.keys.get("channels"))
            if math.prod(bias.shape) != outputs or not is_used_once:
                raise node.refusal(
                    "adds a constant that is not one bias for each feature of only the MatMul"
                    " before"
                )
        walk.parameters.use(node, 1 - place, bias)
        keys, arrays = (
            {**layer.keys, "bias": True},
            {**layer.arrays, "bias": node.inputs[1 - place]},
        )
        walk.steps[value.step] = dataclasses.replace(layer, keys=keys, arrays=arrays)
        return value


@dataclasses.dataclass(frozen=True, kw_only=True)
class Multiply(SfuOperation):
    """The product of two maps of one shape, value by value: a gate, as in SwiGLU.

    One of them may have one value for each channel, by which it is multiplied: as in
    squeeze-and-excitation (Hu et al., 2018). A row then waits for this value, and its error for all
    rows.
    """

    type = "multiply"
    joins, keeps_map = True, True
    of_value = Arithmetic(3)  # the product; back: one for each factor
    onnx = ("Pow",)

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`; the node is a square, the product of a value with itself.

        Raises:
            InputError: it is another power.
        """
        if number_of(walk.constant(node, 1)) != 2:
            raise node.refusal("raises to another power than 2, which is not supported")
        value = walk.take(node)
        return walk.step(node, cls, {}, value, value, like=value)

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        made = max(inputs, key=math.prod)
        if len(inputs) != 2 or any(own not in (made, (made[0], 1, 1)) for own in inputs):
            raise ValueError(
                "multiplies two maps of one shape, or one by a value for each of its channels, but"
                f" these are {' and '.join(map(shown, inputs))}"
            )
        return made

    def rows(self, shape: Shape, made: Shape) -> SfuRows | None:
        """See `SfuOperation`."""
        if shape[1] == made[1]:
            return None
        return SfuRows(np.zeros(made[1], np.int64), np.array([made[1] - 1]))

    def to_onnx(self, out: Export) -> None:
        """See `Operation`; a value for each channel gets the axes of the other map."""
        forms = [out.nodes.form(name) for name in out.taken]
        if forms[0] is forms[1]:
            out.write("Mul")
            return
        channels, taken = out.makes.shape[0], list[str]()
        form = next(form for form in forms if form is not Form.ROW)
        sizes = (0, channels, 1, 1) if form is Form.MAPS else (0, 1, channels)
        for name, own in zip(out.taken, forms, strict=True):
            if own is Form.ROW:
                sizes_of = out.nodes.numbers(f"{out.name}.axes", *sizes)
                name = out.nodes.add("Reshape", [name, sizes_of], f"{out.name}/by_channel")
            taken.append(name)
        out.write_of(taken, "Mul", form=form)

    def unit(self, step: SfuStep, site: Site) -> Unit:
        """See `SfuOperation`."""
        return MultiplyUnit(step.output, site)


def multiplied(walk: Walk, node: OnnxNode) -> Value:
    """Return the product of two maps (`Multiply`), or of one and a value for each of its channels.

    Raises:
        InputError: they lie in different orders, or are of other sizes.
    """
    one, other = _taken(walk, node, spread=True)
    shapes = [walk.shape(own) for own in (one, other)]
    if shapes[0] is None or shapes[1] is None:
        raise node.refusal("multiplies maps whose sizes are not known")
    if shapes[0] == shapes[1]:
        made = _join(walk, node, Multiply, (one, other))
        if not walk.are_alike(one, other):
            raise node.refusal("multiplies rows of values that lie in different orders")
        return made
    whole = one if math.prod(shapes[0]) > math.prod(shapes[1]) else other
    axes = [walk.axes_of(own) for own in (one, other)]
    ends = {len(own) - own.index("channels") for own in axes if "channels" in own}
    by_channel = shapes[0][0] == shapes[1][0] and (1, 1) in (shapes[0][1:], shapes[1][1:])
    # Of maps, with the channels at the same place behind samples: others have one value there.
    if not by_channel or len({*map(len, axes)}) > 1 or len(ends) > 1 or whole.is_flat:
        raise node.refusal(
            f"multiplies maps of {shown(shapes[0])} and {shown(shapes[1])}; only those of one shape,"
            " or by a value for each channel, are supported"
        )
    return walk.step(node, Multiply, {}, one, other, like=whole)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Concat(SfuOperation):
    """Maps of one size, concatenated along channels: where branches end. Along `rows`, maps of as
    many channels and columns: one sequence behind another.
    """

    axis: Literal["channels", "rows"] = "channels"

    type = "concat"
    joins = True
    onnx = ("Concat",)

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        if self.axis == "rows":
            if any(shape[::2] != inputs[0][::2] for shape in inputs):
                raise ValueError(
                    "joins rows of maps with as many channels and columns, but these are"
                    f" {' and '.join(map(shown, inputs))}"
                )
            return inputs[0][0], sum(shape[1] for shape in inputs), inputs[0][2]
        if any(shape[1:] != inputs[0][1:] for shape in inputs):
            raise ValueError(
                "joins channels of maps of one size, but these are"
                f" {' and '.join(map(shown, inputs))}"
            )
        return sum(shape[0] for shape in inputs), *inputs[0][1:]

    def row_maps(self, inputs: Sequence[Shape], made: Shape) -> Sequence[SfuRows | None]:
        """See `SfuOperation`."""
        if self.axis == "channels":
            return super().row_maps(inputs, made)
        firsts = itertools.accumulate((shape[1] for shape in inputs[:-1]), initial=0)
        joined = zip(inputs, firsts, strict=True)
        return [JoinedRows.of(shape[1], first, made[1]) for shape, first in joined]

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`; channels are concatenated, rows of sequences, and a class token, which is
        added before tokens.

        Raises:
            InputError: another axis, or maps are joined with flattened values.
        """
        if any(name in walk.constants for name in node.inputs):
            return cls._class_token(walk, node)
        first, axis = walk.take(node, states=True), node.integer("axis", 1)
        axes = walk.axes_of(first)
        if first.state:
            return cls._states(walk, node, first, axis)
        values = _taken(walk, node)
        axes = walk.axes_of(values[0])
        if len(axes) == 3 and -3 <= axis < 3 and axes[axis] == "rows" and "channels" in axes:
            return _join(walk, node, cls, values, axis="rows")
        place = next((n for n, name in enumerate(axes) if name.split("·")[0] == "channels"), 1)
        if axis not in (place, place - len(axes)) or axes[place].endswith("·channels"):
            raise node.refusal(f"`axis` = {axis}: only channels, axis {place}, are joined")
        made = _join(walk, node, cls, values)
        return cls._row(walk, node, made) if made.is_flat else made

    def to_onnx(self, out: Export) -> None:
        """See `Operation`."""
        first, *others = out.taken
        if self.axis == "rows" and out.nodes.form(first) is Form.TABLE and len(others) == 1:
            out.nodes.join_table(out.makes, first, out.nodes.steps(others[0], f"{out.name}/steps"))
        elif self.axis == "rows":
            out.write("Concat", axis=1 if out.form is Form.STEPS else 2)
        else:
            out.write("Concat", axis=2 if out.form is Form.STEPS else 1)

    def unit(self, step: SfuStep, site: Site) -> Unit:
        """See `SfuOperation`."""
        axis = 1 if self.axis == "rows" else 3
        sizes = [tensor.shape[axis == 1] for tensor in step.reads]
        return ConcatUnit(sizes, site, axis=axis)

    @classmethod
    def _class_token(cls, walk: Walk, node: OnnxNode) -> Value:
        """Return tokens with learnt ones before them, which are arrays of the file."""
        *before, last = node.inputs
        tokens = [walk.constants.get(name) for name in before]
        value = None if last in walk.constants else walk.take(node, len(before))
        shape = None if value is None else walk.shape(value)
        is_made = value is not None and walk.step_of(value) is not None
        if value is not None and is_made and shape is not None and shape[1] > 1 and shape[2] == 1:
            is_first = walk.axes_of(value) == ("samples", "rows", "channels")
            is_first &= node.integer("axis", 1) in (1, -2)
            if is_first and all(
                own is not None and _are_tokens(walk, own, shape[0]) for own in tokens
            ):
                for place in reversed(range(len(before))):  # the last one is next to the others
                    value = cls._before(walk, node, place, value, walk.constants[before[place]])
                return value
        raise node.refusal(
            "joins an array of the file to what nodes make; of such arrays only class tokens are"
            " supported, which are those of all samples, before other tokens"
        )

    @classmethod
    def _before(
        cls, walk: Walk, node: OnnxNode, place: int, value: Value, tokens: Constant
    ) -> Value:
        """Return a sequence with the tokens that a node takes at a place before it."""
        walk.parameters.use(node, place, tokens)
        keys: dict[str, object] = {"class_token": True}
        if (count := tokens.shape[-2]) > 1:
            keys["class_tokens"] = count
        step, arrays = walk.step_of(value), {"class_token": node.inputs[place]}
        if (
            step is not None
            and step.kind is Tokens
            and not step.keys.get("class_token")
            and walk.is_used_once(node.inputs[-1])
        ):
            walk.replace(value.step, keys=keys, arrays=arrays, node=node)
            return value
        return walk.step(node, Tokens, keys, value, like=value, arrays=arrays)

    @classmethod
    def _row(cls, walk: Walk, node: OnnxNode, made: Value) -> Value:
        """Return rows of values joined, which channels are alone if all values of a channel lie
        side by side.
        """
        layouts = [walk.layout(walk.take(node, place)) for place in range(len(node.inputs))]
        behind = {layout[1:] if layout[:1] == ("channels",) else layout for layout in layouts}
        if len(behind) > 1 or any("channels" in axes for axes in behind):
            raise node.refusal(
                "joins rows of values in which those of a channel do not lie side by side, or in"
                " other orders"
            )
        return dataclasses.replace(made, order=("samples", "channels", *behind.pop()))

    @classmethod
    def _states(cls, walk: Walk, node: OnnxNode, first: Value, axis: int) -> Value:
        """Return the last states of several layers, one after another."""
        taken = [walk.take(node, place, states=True) for place in range(len(node.inputs))]
        if axis != walk.axes_of(first).index("directions") or not all(
            value.state for value in taken
        ):
            raise node.refusal(
                "joins the states of recurrent layers; only one layer's last output may be used"
            )
        return dataclasses.replace(
            taken[-1], state=tuple(step for value in taken for step in value.state)
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SomeChannels(SfuOperation):
    """`count` channels of maps, from channel `first` on: such as the half of a layer's that is the
    gate of the other half.
    """

    first: NotNegative = 0
    count: Positive

    type = "channels"

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        [(channels, rows, columns)] = inputs
        if self.first + self.count > channels:
            raise ValueError(
                f"takes {self.count} channels from channel {self.first} on, and there are"
                f" {channels}"
            )
        return self.count, rows, columns

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`."""
        some = slice(self.first, self.first + self.count)

        class Some(nn.Module):
            def forward(self, x: Any) -> Any:
                return x[:, some]

        return Some()

    def to_onnx(self, out: Export) -> None:
        """See `Operation`."""
        if out.form is Form.ROW and out.reads[0].shape[1:] != (1, 1):
            raise out.refusal(f"{self.type} on {out.form.value} ({out.layer})")
        axis = 2 if out.form is Form.STEPS else 1
        bounds = {"first": self.first, "end": self.first + self.count, "axis": axis}
        names = [out.nodes.numbers(f"{out.name}.{key}", bound) for key, bound in bounds.items()]
        out.write("Slice", *names)

    def unit(self, step: SfuStep, site: Site) -> Unit:
        """See `SfuOperation`."""
        return SomeChannelsUnit(slice(self.first, self.first + self.count), step.input[0], site)


class AddUnit(Unit):
    """The sum of the inputs, in order."""

    def __init__(self, terms: int, site: Site) -> None:
        super().__init__(site)
        self._terms = terms

    def forward(self, xs: Inputs, weights: Weights, training: Training | None) -> Made:
        """See `Unit`."""
        y = self.arena.take(xs[0].shape)
        np.add(xs[0], xs[1], out=y)
        for x in xs[2:]:
            y += x
        return y, ()

    def backward(self, state: State, dz: Data, weights: Weights) -> Inputs:
        """See `Unit`."""
        # The derivative of a sum by each of its terms is 1: all share the errors, without copies.
        return [dz] * self._terms


class MultiplyUnit(Unit):
    """The product of two inputs, which it keeps; one may have a value for each channel."""

    def __init__(self, made: Shape, site: Site) -> None:
        super().__init__(site)
        channels, *sizes = made
        self._made = (*sizes, channels)

    def forward(self, xs: Inputs, weights: Weights, training: Training | None) -> Made:
        """See `Unit`."""
        y = self.arena.take((len(xs[0]), *self._made))
        np.multiply(xs[0], xs[1], out=y)
        return y, (xs[0], xs[1])

    def backward(self, state: State, dz: Data, weights: Weights) -> Inputs:
        """See `Unit`."""
        errors = []
        for x, factor in (state, reversed(state)):
            errors.append(self.arena.take(x.shape))
            if x.shape == dz.shape:
                np.multiply(dz, factor, out=errors[-1])
            else:
                gate_error(factor, dz, errors[-1])
        return errors


class ConcatUnit(Unit):
    """The channels, or the rows, of all inputs, in order; `axis` is that of maps (samples, rows,
    columns, channels).
    """

    def __init__(self, sizes: Sequence[int], site: Site, *, axis: int) -> None:
        super().__init__(site)
        ends = itertools.accumulate(sizes, initial=0)
        before = [slice(None)] * axis
        self._spans = [(*before, slice(*ends)) for ends in itertools.pairwise(ends)]
        self._axis, self._size = axis, sum(sizes)

    def forward(self, xs: Inputs, weights: Weights, training: Training | None) -> Made:
        """See `Unit`."""
        shape = [*xs[0].shape]
        shape[self._axis] = self._size
        y = self.arena.take(tuple(shape))
        for span, x in zip(self._spans, xs, strict=True):
            y[span] = x
        return y, ()

    def backward(self, state: State, dz: Data, weights: Weights) -> Inputs:
        """See `Unit`."""
        return [dz[span] for span in self._spans]


class SomeChannelsUnit(Unit):
    """Some channels; all others have no error."""

    def __init__(self, some: slice, channels: int, site: Site) -> None:
        super().__init__(site)
        self._some, self._channels = some, channels

    def forward(self, xs: Inputs, weights: Weights, training: Training | None) -> Made:
        """See `Unit`."""
        [x] = xs
        own = x[..., self._some]
        y = self.arena.take(own.shape)
        y[...] = own
        return y, ()

    def backward(self, state: State, dz: Data, weights: Weights) -> Inputs:
        """See `Unit`."""
        dx = self.arena.take((*dz.shape[:3], self._channels))
        dx[...] = 0
        dx[..., self._some] = dz
        return (dx,)
