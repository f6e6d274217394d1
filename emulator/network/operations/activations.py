"""Activations: operations on each value by itself; shapes and channels stay as they are, and ONNX
has most of them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...common import Finite, PositiveFinite, Rate
from ..onnx_nodes import Export
from ..operation import Arithmetic, SfuOperation
from ..shape import Shape
from .joins import multiplied
from .scale import Scale, by_channel, number_of, scaled

if TYPE_CHECKING:
    from ..onnx_graph import OnnxNode, Value, Walk


class ElementWise(SfuOperation):
    """An operation on each value by itself, by default without keys."""

    by_channel = True

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        return inputs[0]

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`."""
        value = walk.take(node)
        return walk.step(node, cls, {}, value, like=value)

    def to_onnx(self, out: Export) -> None:
        """See `Operation`; the first of the operators does it."""
        if not self.onnx:
            super().to_onnx(out)
        out.write(self.onnx[0])


class Rectifier(ElementWise):
    """ReLU, or what resembles it."""

    @property
    def he_gain(self) -> float:
        """2, because ReLU halves the variance."""
        return 2.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Relu(Rectifier):
    """max(0, x)."""

    type = "relu"
    onnx = ("Relu", "Max")
    never_negative = True

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`."""
        return nn.ReLU(inplace=True)

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`; the node may be Max of a value and 0.

        Raises:
            InputError: it is the maximum of other things.
        """
        if node.operator == "Relu":
            return super().from_onnx(walk, node)
        value, limit = walk.with_number(node)
        if limit != 0:
            raise node.refusal("takes a maximum; only that of one value and 0 is supported")
        return walk.step(node, cls, {}, value, like=value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gelu(ElementWise):
    """x times the normal distribution function of x; `tanh`: by its approximation with tanh."""

    tanh: bool = False

    keeps_map = True
    type = "gelu"
    # By tanh of a cubic: 3 and 2, and its derivative 5. Erf takes a polynomial of degree 5 in place
    # of the cubic, and is counted as tanh.
    of_value = Arithmetic(10, 1, 1)
    onnx = ("Gelu",)

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`."""
        return nn.GELU(approximate="tanh" if self.tanh else "none")

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`."""
        value, form = walk.take(node), node.attributes.get("approximate", "none")
        return walk.step(node, cls, {"tanh": form == "tanh"}, value, like=value)

    def to_onnx(self, out: Export) -> None:
        """See `Operation`; as PyTorch writes it for versions of ONNX that have no node for it."""
        nodes, name, x, form = out.nodes, out.name, out.x, out.form
        if self.tanh:
            square = nodes.add("Mul", [x, x], f"{name}/square")
            cube = nodes.add("Mul", [square, x], f"{name}/cube")
            share = nodes.add("Mul", [cube, out.number("cubic", 0.044715)], f"{name}/share")
            both = nodes.add("Add", [x, share], f"{name}/sum")
            inner = nodes.add(
                "Mul", [both, out.number("slope", math.sqrt(2 / math.pi))], f"{name}/inner"
            )
        else:
            inner = nodes.add("Div", [x, out.number("root", math.sqrt(2))], f"{name}/inner")
        odd = nodes.add("Tanh" if self.tanh else "Erf", [inner], f"{name}/odd")
        above_0 = nodes.add("Add", [odd, out.number("one", 1.0)], f"{name}/above_0")
        product = nodes.add("Mul", [x, above_0], f"{name}/product")
        out.write_of([product], "Mul", out.number("half", 0.5), form=form)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LeakyRelu(ElementWise):
    """x where it is above 0, else `slope` times x."""

    slope: Rate = 0.01

    type = "leaky-relu"
    onnx = ("LeakyRelu",)

    @property
    def he_gain(self) -> float:
        """2 / (1 + slope^2) (He et al., 2015, equation 15)."""
        return 2 / (1 + self.slope**2)

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`."""
        return nn.LeakyReLU(self.slope)

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`; ONNX calls the slope alpha."""
        value = walk.take(node)
        return walk.step(node, cls, {"slope": node.number("alpha", 0.01)}, value, like=value)

    def to_onnx(self, out: Export) -> None:
        """See `Operation`."""
        out.write("LeakyRelu", alpha=self.slope)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Elu(Rectifier):
    """x where it is above 0, else `scale` times exp(x) - 1."""

    scale: PositiveFinite = 1.0

    keeps_map = True
    type = "elu"
    of_value = Arithmetic(4, 1)  # exp(x) - 1, by the scale; back: (y + scale) dy
    onnx = ("Elu",)

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`."""
        return nn.ELU(self.scale)

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`; ONNX calls the scale alpha."""
        value = walk.take(node)
        return walk.step(node, cls, {"scale": node.number("alpha", 1.0)}, value, like=value)

    def to_onnx(self, out: Export) -> None:
        """See `Operation`."""
        out.write("Elu", alpha=self.scale)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mish(Rectifier):
    """x times tanh(log(1 + exp(x))) (Misra, 2019)."""

    keeps_map = True
    type = "mish"
    # By e = exp(x), n = e (e + 2): x n / (n + 2); back: gate + x (1 - gate gate) e / (1 + e), by
    # dy.
    of_value = Arithmetic(9, 1, 2)
    onnx = ("Mish",)

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`."""
        return nn.Mish()

    def to_onnx(self, out: Export) -> None:
        """See `Operation`; spelled out, as versions before 18 have no node for it."""
        nodes, name, form = out.nodes, out.name, out.form
        above = nodes.add("Softplus", out.taken, f"{name}/softplus")
        gate = nodes.add("Tanh", [above], f"{name}/gate")
        out.write_of([*out.taken, gate], "Mul", form=form)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Clip(ElementWise):
    """x, but at least `low` and at most `high`, as PyTorch's Hardtanh."""

    low: Finite = -1.0
    high: Finite = 1.0

    type = "clip"

    def __post_init__(self) -> None:
        if self.low >= self.high:
            raise ValueError(f"`low` = {self.low:g} must be less than `high` = {self.high:g}")

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`."""
        return nn.Hardtanh(self.low, self.high)

    def to_onnx(self, out: Export) -> None:
        """See `Operation`."""
        out.write("Clip", out.number("low", self.low), out.number("high", self.high))


LIMIT = 6.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Relu6(Rectifier):
    """max(0, x), and at most 6."""

    type = "relu6"
    onnx = ("Clip", "Min")
    never_negative = True

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`."""
        return nn.ReLU6()

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`; without an upper limit it is ReLU, and ReLU6 may be ReLU and a limit of
        6 alone; between other limits it is `clip`.

        Raises:
            InputError: one other limit alone, or limits that are not constants.
        """
        if node.operator == "Min":
            value, limit = walk.with_number(node)
            if limit != LIMIT or not cls._limits(walk, node, value):
                raise node.refusal(
                    "takes a minimum; only that of ReLU, which nothing else takes, and 6 is"
                    " supported"
                )
            return value
        value = walk.take(node)
        low, high = _limit(walk, node, "min", 1), _limit(walk, node, "max", 2)
        if low == -math.inf and high == LIMIT and cls._limits(walk, node, value):
            return value
        if low != 0 or high not in (LIMIT, math.inf):
            if not -math.inf < low < high < math.inf:
                raise node.refusal(
                    f"clips to {low:g} ... {high:g}: only 0 ... inf (ReLU), or from one number to a"
                    " larger one, is supported"
                )
            return walk.step(node, Clip, {"low": low, "high": high}, value, like=value)
        return walk.step(node, cls if high == LIMIT else Relu, {}, value, like=value)

    def to_onnx(self, out: Export) -> None:
        """See `Operation`."""
        out.write("Clip", *(out.number(f"{limit:g}", limit) for limit in (0.0, LIMIT)))

    @classmethod
    def _limits(cls, walk: Walk, node: OnnxNode, value: Value) -> bool:
        """Make the ReLU that a node limits a ReLU6; return False if it limits another, or one that
        others take.
        """
        step = walk.step_of(value)
        is_alone = all(
            name in walk.constants or walk.is_used_once(name) for name in node.inputs if name
        )
        if step is None or step.kind is not Relu or not is_alone:
            return False
        walk.steps[value.step] = dataclasses.replace(step, kind=cls, node=node)
        return True


def _limit(walk: Walk, node: OnnxNode, attribute: str, place: int) -> float:
    """Return a limit: an attribute, or in newer versions of the operator an input; infinite if it
    is not given.
    """
    if attribute not in node.attributes and not node.has_input(place):
        return -math.inf if attribute == "min" else math.inf
    limits = walk.numbers(node, attribute, place)
    if len(limits) != 1:
        raise node.refusal(f"`{attribute}` should be one number")
    return float(limits[0])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sigmoid(ElementWise):
    """1 / (1 + exp(-x))."""

    keeps_map = True
    type = "sigmoid"
    of_value = Arithmetic(3, 1, 1)  # 1 + exp(-x); back: y (1 - y) dy
    onnx = ("Sigmoid",)
    never_negative = True

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`."""
        return nn.Sigmoid()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tanh(ElementWise):
    """The hyperbolic tangent."""

    keeps_map = True
    type = "tanh"
    of_value = Arithmetic(4, 1, 1)  # 1 - 2 / (1 + exp(2 x)); back: (1 - y y) dy
    onnx = ("Tanh",)

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`."""
        return nn.Tanh()


@dataclasses.dataclass(frozen=True, kw_only=True)
class HardSigmoid(ElementWise):
    """(x + 3) / 6, at least 0 and at most 1."""

    type = "hard-sigmoid"
    onnx = ("HardSigmoid",)
    never_negative = True

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`."""
        return nn.Hardsigmoid()

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`.

        Raises:
            InputError: another line than PyTorch's.
        """
        alpha, beta = node.number("alpha", 0.2), node.number("beta", 0.5)
        if not math.isclose(alpha, 1 / 6, rel_tol=1e-6) or beta != 0.5:
            raise node.refusal(
                f"`alpha` = {alpha:g}, `beta` = {beta:g}: only 1/6 and 0.5, as in PyTorch, is"
                " supported"
            )
        return super().from_onnx(walk, node)

    def to_onnx(self, out: Export) -> None:
        """See `Operation`."""
        out.write("HardSigmoid", alpha=1 / 6, beta=0.5)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Silu(Rectifier):
    """x times sigmoid(x)."""

    keeps_map = True
    type = "silu"
    of_value = Arithmetic(5, 1, 1)  # 1 + exp(-x), x y; back: y (1 + x (1 - y)) dy
    onnx = ("Mul", "Swish")

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`."""
        return nn.SiLU()

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`; PyTorch writes it, and the hard form, as a sigmoid and a multiplication
        of its input by it. Other products of two maps are `multiply`.

        Raises:
            InputError: numbers of the file are multiplied, or a map of another shape, or Swish has
                another `alpha` than 1.
        """
        if node.operator == "Swish":
            if (alpha := node.number("alpha", 1.0)) != 1:
                raise node.refusal(f"`alpha` = {alpha:g}: only 1 is supported")
            return super().from_onnx(walk, node)
        if any(name in walk.constants for name in node.inputs):
            return _by_constant(walk, node)
        factors = [walk.take(node, place, spread=True) for place in (0, 1)]
        for place, (one, other) in enumerate((factors, factors[::-1])):
            step = walk.step_of(one)
            if (
                step is None
                or step.kind not in _FORMS
                or step.takes != (other.step,)
                or not walk.are_alike(one, other)
            ):
                continue
            if walk.is_used_once(node.inputs[place]):
                walk.steps[one.step] = dataclasses.replace(step, kind=_FORMS[step.kind], node=node)
                return one
        return multiplied(walk, node)

    def to_onnx(self, out: Export) -> None:
        """See `Operation`."""
        form = out.form
        share = out.nodes.add("Sigmoid", out.taken, f"{out.name}/share")
        out.write_of([*out.taken, share], "Mul", form=form)


@dataclasses.dataclass(frozen=True, kw_only=True)
class HardSwish(Rectifier):
    """x times hard-sigmoid(x)."""

    keeps_map = True
    type = "hard-swish"
    onnx = ("HardSwish",)

    def torch(self, nn: Any, shape: Shape) -> Any:
        """See `SfuOperation`."""
        return nn.Hardswish()


def _by_constant(walk: Walk, node: OnnxNode) -> Value:
    """Return a value times a number, or times a learnt one for each channel.

    Raises:
        InputError: times other arrays.
    """
    place = next(n for n, name in enumerate(node.inputs) if name not in walk.constants)
    constant = walk.constants[node.inputs[1 - place]]
    if (number := number_of(constant)) is not None:
        return scaled(walk, node, place, number)
    made = by_channel(walk, node, Scale, walk.take(node, place), constant)
    if made is None:
        raise node.refusal(
            "multiplies by an array of the file; only one number, and one for each channel, are"
            " supported"
        )
    return made


_FORMS: Mapping[type[Any], type[Rectifier]] = {Sigmoid: Silu, HardSigmoid: HardSwish}
"""What x times each of these is."""
