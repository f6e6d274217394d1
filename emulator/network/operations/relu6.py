"""Rectified linear units with a limit."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from ..element_wise import Rectifier
from .relu import Relu

if TYPE_CHECKING:
    from ..onnx_graph import OnnxNode, Value, Walk

LIMIT = 6.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Relu6(Rectifier):
    """max(0, x), and at most 6."""

    type = "relu6"
    onnx = ("Clip", "Min")
    never_negative = True

    def torch(self, nn: Any) -> Any:
        """See `SfuOperation`."""
        return nn.ReLU6()

    @classmethod
    def from_onnx(cls, walk: Walk, node: OnnxNode) -> Value:
        """See `Operation`; without an upper limit it is ReLU, and ReLU6 may be ReLU and a limit of 6 alone.

        Raises:
            InputError: other limits than 0 and 6, or limits that are not constants.
        """
        if node.operator == "Min":
            value, limit = walk.with_number(node)
            if limit != LIMIT or not cls._limits(walk, node, value):
                raise node.refusal("takes a minimum; only that of ReLU, which nothing else takes, and 6 is supported")
            return value
        value = walk.take(node)
        low, high = _limit(walk, node, "min", 1), _limit(walk, node, "max", 2)
        if low == -math.inf and high == LIMIT and cls._limits(walk, node, value):
            return value
        if low != 0 or high not in (LIMIT, math.inf):
            raise node.refusal(f"clips to {low:g} ... {high:g}: only 0 ... 6 (ReLU6) or 0 ... inf (ReLU) is supported")
        return walk.step(node, cls if high == LIMIT else Relu, {}, value, like=value)

    @classmethod
    def _limits(cls, walk: Walk, node: OnnxNode, value: Value) -> bool:
        """Make the ReLU that a node limits a ReLU6; return False if it limits another, or one that others take."""
        step = walk.step_of(value)
        is_alone = all(name in walk.constants or walk.is_used_once(name) for name in node.inputs if name)
        if step is None or step.kind is not Relu or not is_alone:
            return False
        walk.steps[value.step] = dataclasses.replace(step, kind=cls, node=node)
        return True


def _limit(walk: Walk, node: OnnxNode, attribute: str, place: int) -> float:
    """Return a limit: an attribute, or in newer versions of the operator an input; infinite if it is not given."""
    if attribute not in node.attributes and not node.has_input(place):
        return -math.inf if attribute == "min" else math.inf
    found = walk.numbers(node, attribute, place)
    if len(found) != 1:
        raise node.refusal(f"`{attribute}` should be one number")
    return float(found[0])
