"""Sigmoid linear units (SiLU, swish), and their form of straight lines."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..element_wise import Rectifier
from .sigmoid import HardSigmoid, Sigmoid

if TYPE_CHECKING:
    from ..onnx_graph import OnnxNode, Value, Walk


@dataclasses.dataclass(frozen=True, kw_only=True)
class Silu(Rectifier):
    """x times sigmoid(x)."""

    type = "silu"
    onnx = ("Mul", "Swish")

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
            return super().from_onnx(walk, node)
        if any(name in walk.constants for name in node.inputs):
            raise node.refusal(
                "multiplies by numbers of the file; only x times Sigmoid(x) or HardSigmoid(x) is supported"
            )
        factors = [walk.take(node, place) for place in (0, 1)]
        for place, (one, other) in enumerate((factors, factors[::-1])):
            step = walk.step_of(one)
            if step is None or step.kind not in _FORMS or step.takes != (other.step,) or not walk.are_alike(one, other):
                continue
            if walk.is_used_once(node.inputs[place]):
                walk.steps[one.step] = dataclasses.replace(step, kind=_FORMS[step.kind], node=node)
                return one
        shapes = [walk.shape(one) for one in factors]
        scales = any(one is not None and one[1:] == (1, 1) for one in shapes) and len({*shapes}) > 1
        what = "scales channels of maps, as squeeze-and-excitation does" if scales else "multiplies"
        raise node.refusal(f"{what}: only x times Sigmoid(x) or HardSigmoid(x) that nothing else takes is supported")


@dataclasses.dataclass(frozen=True, kw_only=True)
class HardSwish(Rectifier):
    """x times hard-sigmoid(x)."""

    type = "hard-swish"
    onnx = ("HardSwish",)

    def torch(self, nn: Any) -> Any:
        """See `SfuOperation`."""
        return nn.Hardswish()


_FORMS: Mapping[type[Any], type[Rectifier]] = {Sigmoid: Silu, HardSigmoid: HardSwish}
"""What x times each of these is."""
