"""Sigmoid linear units (SiLU, swish), and their form of straight lines."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..operation import SfuOperation
from ..shape import Shape
from .sigmoid import HardSigmoid, Sigmoid

if TYPE_CHECKING:
    from ..onnx_graph import OnnxNode, Value, Walk


@dataclasses.dataclass(frozen=True, kw_only=True)
class Silu(SfuOperation):
    """x times sigmoid(x)."""

    by_channel = True
    type = "silu"
    onnx = ("Mul", "Swish")

    @property
    def he_gain(self) -> float:
        """2, as of ReLU, which it resembles."""
        return 2.0

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        return inputs[0]

    def torch(self, nn: Any) -> Any:
        """See `SfuOperation`."""
        return nn.SiLU()

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`; PyTorch writes it, and the hard form, as a sigmoid and a multiplication of its input by it.

        Raises:
            InputError: something else is multiplied, or Swish has another `alpha` than 1.
        """
        if node.operator == "Swish":
            if (alpha := node.number("alpha", 1.0)) != 1:
                raise node.refusal(f"`alpha` = {alpha:g}: only 1 is supported")
            value = walk.take(node)
            return walk.step(node, cls, {}, value, like=value)
        factors = [walk.take(node, place) for place in (0, 1)]
        for place, (one, other) in enumerate((factors, factors[::-1])):
            step = walk.step_of(one)
            if step is None or step.kind not in _FORMS or step.takes != (other.step,):
                continue
            if walk.is_used_once(node.inputs[place]):
                walk.steps[one.step] = dataclasses.replace(step, kind=_FORMS[step.kind], node=node)
                return one
        raise node.refusal("multiplies: only x times Sigmoid(x) or HardSigmoid(x) that nothing else takes is supported")


@dataclasses.dataclass(frozen=True, kw_only=True)
class HardSwish(SfuOperation):
    """x times hard-sigmoid(x)."""

    by_channel = True
    type = "hard-swish"
    onnx = ("HardSwish",)

    @property
    def he_gain(self) -> float:
        """2, as of ReLU, which it resembles."""
        return 2.0

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """See `Operation`."""
        return inputs[0]

    def torch(self, nn: Any) -> Any:
        """See `SfuOperation`."""
        return nn.Hardswish()

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`."""
        value = walk.take(node)
        return walk.step(node, cls, {}, value, like=value)


_FORMS: Mapping[type[Any], type[SfuOperation]] = {Sigmoid: Silu, HardSigmoid: HardSwish}
"""What x times each of these is."""
