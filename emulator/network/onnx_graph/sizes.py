"""Constants that follow from others and from sizes, as PyTorch writes them for zero states and reshapes.

The size of an axis is known by its name alone: the number of samples is open.
"""

from __future__ import annotations

import dataclasses

from .node import Constant, OnnxNode
from .walk import Walk

_SAME = ("Identity", "Cast", "Unsqueeze", "Squeeze", "Reshape")
_KEEP_ZEROS = (*_SAME, "Slice", "Expand", "Concat", "Gather", "Transpose", "Tile", "Split")
_ARITHMETIC = ("Add", "Sub", "Mul", "Div")


def folded(walk: Walk, node: OnnxNode) -> Constant | None:
    """Return what a node makes of sizes and constants; None if it takes anything else, or does something else.

    Raises:
        InputError: it takes the shape of nothing.
    """
    name = "".join(node.outputs[:1])
    if node.operator == "CastLike" and node.inputs[:1] and node.inputs[0] in walk.constants:
        return dataclasses.replace(walk.constants[node.inputs[0]], name=name)
    if node.operator == "Shape":
        of_constant = walk.constant(node, 0)
        axes = walk.axes_of(walk.take(node, states=True)) if of_constant is None else of_constant.shape
        return _of_sizes(name, axes[node.integer("start", 0) : node.integer("end", len(axes))])
    taken = [walk.constants.get(given) for given in node.inputs if given]
    constants = [constant for constant in taken if constant is not None]
    if not constants or len(constants) < len(taken):
        return None
    if node.operator == "ConstantOfShape":
        return _filled(name, node)
    entries = _entries(node, constants)
    if entries is not None:
        return _of_sizes(name, entries)
    if node.operator in _KEEP_ZEROS and constants[0].holds_zeros:
        return Constant(name, (), None, is_zero=True)
    return None


def _of_sizes(name: str, entries: tuple[int | str, ...]) -> Constant:
    numbers = tuple(entry for entry in entries if isinstance(entry, int))
    return Constant(name, (len(entries),), numbers if len(numbers) == len(entries) else None, entries)


def _filled(name: str, node: OnnxNode) -> Constant:
    value = node.attributes.get("value")
    return Constant(name, (), None, is_zero=value is None or (isinstance(value, Constant) and value.holds_zeros))


def _entries(node: OnnxNode, constants: list[Constant]) -> tuple[int | str, ...] | None:
    """Return the sizes that a node makes of others; None if it makes something else."""
    first, *others = (constant.entries for constant in constants)
    if first is None:
        return None
    if node.operator in _SAME:
        return first
    if any(other is None for other in others):
        return None
    rest = [other for other in others if other is not None]
    if node.operator == "Expand" and rest == [(1,)]:
        return first
    if node.operator == "Concat":
        return tuple(entry for each in (first, *rest) for entry in each)
    if node.operator in _ARITHMETIC:
        return ("product",) * max(len(each) for each in (first, *rest))
    numbers = [entry for each in rest for entry in each if isinstance(entry, int)]
    if node.operator == "Gather" and len(numbers) == 1 and -len(first) <= numbers[0] < len(first):
        return (first[numbers[0]],)
    if node.operator == "Slice" and len(numbers) >= 2 and all(len(each) == 1 for each in rest):
        return first[numbers[0] : numbers[1]]
    return None
