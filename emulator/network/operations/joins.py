"""Operations that end shortcuts and branches: addition, multiplication and concatenation."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..onnx_nodes import Export, Form
from ..operation import Arithmetic, SfuOperation, SfuStep
from ..shape import Shape, shown
from ..unit import Data, Inputs, Made, Site, State, Training, Unit, Weights
from .tokens import Positions, Tokens

if TYPE_CHECKING:
    from ..onnx_graph import Constant, OnnxNode, Value, Walk


def _join(walk: Walk, node: OnnxNode, kind: type[SfuOperation]) -> Value:
    first, *others = (walk.take(node, place) for place in range(max(1, len(node.inputs))))
    if any(other.is_flat != first.is_flat for other in others):
        raise node.refusal("joins maps and values that were flattened")
    if any(walk.axes_of(other) != walk.axes_of(first) for other in others):
        raise node.refusal(f"joins values with other axes than {walk.shown_axes(first)}")
    return walk.step(node, kind, {}, first, *others, like=first) if others else first


def _tokens(walk: Walk, channels: int) -> list[tuple[int, ...]]:
    """Return the shapes that an array of a class token may have; samples are as many as it was
    exported with.
    """
    return [(1, 1, channels), (walk.batch or 1, 1, channels)]


def _is_one(walk: Walk, token: Constant) -> bool:
    """Return whether an array holds one class token, be it repeated for samples."""
    if token.shape[0] == 1:
        return True
    tokens = walk.expressions.value(token.name)
    return bool((tokens == tokens[:1]).all())


def _are_positions(walk: Walk, value: Value, constant: Constant) -> bool:
    """Return whether a constant has a number for each row and channel of a sequence."""
    sizes, shape = walk.sizes(value), walk.shape(value)
    if shape is None or walk.axes_of(value) != ("samples", "rows", "channels") or shape[1] == 1:
        return False
    own = (
        constant.shape[1:]
        if len(constant.shape) == 3 and constant.shape[0] == 1
        else constant.shape
    )
    return own == sizes[1:]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Add(SfuOperation):
    """The sum of maps of one shape: where a shortcut ends."""

    type = "add"
    joins = True
    onnx = ("Add", "Sum")

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        if any(shape != inputs[0] for shape in inputs):
            raise ValueError(
                f"adds maps of one shape, but these are {' and '.join(map(shown, inputs))}"
            )
        return inputs[0]

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`; a constant that is added is the bias after a MatMul, or of each row and
        channel.

        Raises:
            InputError: another constant is added, or maps are added to flattened values.
        """
        if len(node.inputs) == 2 and sum(name in walk.constants for name in node.inputs) == 1:
            return cls._bias(walk, node)
        made = _join(walk, node, cls)
        if not walk.are_alike(*(walk.take(node, place) for place in range(len(node.inputs)))):
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
    def _bias(cls, walk: Walk, node: OnnxNode) -> Value:
        [place] = [n for n, name in enumerate(node.inputs) if name not in walk.constants]
        value, bias = walk.take(node, place), walk.constants[node.inputs[1 - place]]
        matmul = walk.step_of(value)
        if _are_positions(walk, value, bias):
            walk.parameters.use(node, 1 - place, bias)
            return walk.step(
                node, Positions, {}, value, like=value, arrays={"positions": node.inputs[1 - place]}
            )
        if matmul is None or matmul.node.operator != "MatMul" or matmul.keys["bias"]:
            raise node.refusal(
                "adds a constant; only the bias after a MatMul, and positions of a sequence's rows"
                " and channels, are supported"
            )
        outputs = matmul.keys.get("features", matmul.keys.get("channels"))
        if math.prod(bias.shape) != outputs or not walk.is_used_once(node.inputs[place]):
            raise node.refusal(
                "adds a constant that is not one bias for each feature of only the MatMul before"
            )
        walk.parameters.use(node, 1 - place, bias)
        keys, arrays = (
            {**matmul.keys, "bias": True},
            {**matmul.arrays, "bias": node.inputs[1 - place]},
        )
        walk.steps[value.step] = dataclasses.replace(matmul, keys=keys, arrays=arrays)
        return value


@dataclasses.dataclass(frozen=True, kw_only=True)
class Multiply(SfuOperation):
    """The product of two maps of one shape, value by value: a gate, as in SwiGLU."""

    type = "multiply"
    joins, keeps_map = True, True
    of_value = Arithmetic(3)  # the product; back: one for each factor

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        if len(inputs) != 2 or inputs[0] != inputs[1]:
            raise ValueError(
                "multiplies two maps of one shape, but these are"
                f" {' and '.join(map(shown, inputs))}"
            )
        return inputs[0]

    def to_onnx(self, out: Export) -> None:
        """See `Operation`."""
        out.write("Mul")

    def unit(self, step: SfuStep, site: Site) -> Unit:
        """See `SfuOperation`."""
        return MultiplyUnit(site)


def multiplied(walk: Walk, node: OnnxNode) -> Value:
    """Return the product of two maps (`Multiply`).

    Raises:
        InputError: they lie in different orders, or one scales channels of the other.
    """
    one, other = (walk.take(node, place) for place in (0, 1))
    shapes = {walk.shape(one), walk.shape(other)}
    if len(shapes) > 1 or None in shapes:
        scales = any(shape is not None and shape[1:] == (1, 1) for shape in shapes)
        what = "scales channels of maps, as squeeze-and-excitation does" if scales else "multiplies"
        raise node.refusal(f"{what}: only products of maps of one shape are supported")
    made = _join(walk, node, Multiply)
    if not walk.are_alike(one, other):
        raise node.refusal("multiplies rows of values that lie in different orders")
    return made


@dataclasses.dataclass(frozen=True, kw_only=True)
class Concat(SfuOperation):
    """Maps of one size, concatenated along channels: where branches end."""

    type = "concat"
    joins = True
    onnx = ("Concat",)

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        if any(shape[1:] != inputs[0][1:] for shape in inputs):
            raise ValueError(
                "joins channels of maps of one size, but these are"
                f" {' and '.join(map(shown, inputs))}"
            )
        return sum(shape[0] for shape in inputs), *inputs[0][1:]

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`; only channels are concatenated, and a class token, which is added before
        tokens.

        Raises:
            InputError: another axis, or maps are joined with flattened values.
        """
        if any(name in walk.constants for name in node.inputs):
            return cls._class_token(walk, node)
        first, axis = walk.take(node, states=True), node.integer("axis", 1)
        axes = walk.axes_of(first)
        if first.state:
            return cls._states(walk, node, first, axis)
        place = next((n for n, name in enumerate(axes) if name.split("·")[0] == "channels"), 1)
        if axis not in (place, place - len(axes)) or axes[place].endswith("·channels"):
            raise node.refusal(f"`axis` = {axis}: only channels, axis {place}, are joined")
        made = _join(walk, node, cls)
        return cls._row(walk, node, made) if made.is_flat else made

    def to_onnx(self, out: Export) -> None:
        """See `Operation`."""
        out.write("Concat", axis=2 if out.form is Form.STEPS else 1)

    def unit(self, step: SfuStep, site: Site) -> Unit:
        """See `SfuOperation`."""
        return ConcatUnit([tensor.shape[0] for tensor in step.reads], site)

    @classmethod
    def _class_token(cls, walk: Walk, node: OnnxNode) -> Value:
        """Return tokens with a learnt one before them, which is an array of the file."""
        token, last = walk.constant(node, 0), node.inputs[-1]
        if len(node.inputs) == 2 and token is not None and last not in walk.constants:
            value = walk.take(node, 1)
            step, shape = walk.step_of(value), walk.shape(value)
            if (
                step is not None
                and shape is not None
                and shape[2] == 1
                and token.shape in _tokens(walk, shape[0])
            ):
                is_first = walk.axes_of(value) == ("samples", "rows", "channels") and node.integer(
                    "axis", 1
                ) in (1, -2)
                if is_first and shape[1] > 1 and _is_one(walk, token):
                    walk.parameters.use(node, 0, token)
                    keys, arrays = {"class_token": True}, {"class_token": node.inputs[0]}
                    if (
                        step.kind is Tokens
                        and not step.keys.get("class_token")
                        and walk.is_used_once(last)
                    ):
                        walk.replace(value.step, keys=keys, arrays=arrays, node=node)
                        return value
                    return walk.step(node, Tokens, keys, value, like=value, arrays=arrays)
        raise node.refusal(
            "joins an array of the file to what nodes make; of such arrays only a class token is"
            " supported, which is one for all samples, before other tokens"
        )

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
    """The product of two inputs, which it keeps."""

    def forward(self, xs: Inputs, weights: Weights, training: Training | None) -> Made:
        """See `Unit`."""
        y = self.arena.take(xs[0].shape)
        np.multiply(xs[0], xs[1], out=y)
        return y, (xs[0], xs[1])

    def backward(self, state: State, dz: Data, weights: Weights) -> Inputs:
        """See `Unit`."""
        errors = []
        for factor in reversed(state):
            errors.append(self.arena.take(dz.shape))
            np.multiply(dz, factor, out=errors[-1])
        return errors


class ConcatUnit(Unit):
    """The channels of all inputs, in order."""

    def __init__(self, channels: Sequence[int], site: Site) -> None:
        super().__init__(site)
        ends = itertools.accumulate(channels, initial=0)
        self._spans = [slice(*ends) for ends in itertools.pairwise(ends)]

    def forward(self, xs: Inputs, weights: Weights, training: Training | None) -> Made:
        """See `Unit`."""
        y = self.arena.take((*xs[0].shape[:3], self._spans[-1].stop))
        for span, x in zip(self._spans, xs, strict=True):
            y[..., span] = x
        return y, ()

    def backward(self, state: State, dz: Data, weights: Weights) -> Inputs:
        """See `Unit`."""
        return [dz[..., span] for span in self._spans]
