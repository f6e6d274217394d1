"""Constants that follow from others and from sizes, as PyTorch writes them for zero states and
reshapes.

The size of an axis is known by its name alone: the number of samples is open.
"""

from __future__ import annotations

import dataclasses
import re

from .node import FLOAT, INT64, Constant, OnnxNode
from .walk import Walk

_SAME = ("Identity", "Cast", "Unsqueeze", "Squeeze", "Reshape")
_KEEP_ZEROS = (*_SAME, "Slice", "Expand", "Concat", "Gather", "Transpose", "Tile", "Split")
_ARITHMETIC = ("Add", "Sub", "Mul", "Div")
_IS_COPY = re.compile(r"Identity_\d+$")
"""PyTorch's old exporter names so what makes an array of another one that is equal, but another
parameter.
"""


def folded(walk: Walk, node: OnnxNode) -> list[Constant] | None:
    """Return what a node makes of sizes and constants, by outputs; None if it takes or does
    anything else.

    Raises:
        InputError: it takes the shape of nothing, or computes too much.
    """
    name = "".join(node.outputs[:1])
    made: list[Constant] | None
    if (
        node.operator == "CastLike"
        and walk.constant(node, 0) is not None
        and walk.constant(node, 1) is None
    ):
        made = [dataclasses.replace(walk.constants[node.inputs[0]], name=name)]
        if (numbers := made[0].numbers) is not None and node.inputs[1] not in walk.inputs:
            made = [
                dataclasses.replace(
                    made[0], numbers=tuple(map(float, numbers)), sizes=None, kind=FLOAT
                )
            ]
        return made
    if node.operator == "Shape":
        of_constant = walk.constant(node, 0)
        axes: tuple[int | str, ...]
        if of_constant is None:
            axes = walk.sizes(walk.take(node, states=True))
        else:
            axes = of_constant.shape if of_constant.extents is None else of_constant.extents
        return [_of_sizes(name, axes[node.integer("start", 0) : node.integer("end", len(axes))])]
    taken = [walk.constants.get(given) for given in node.inputs]
    constants = [
        constant
        for constant, given in zip(taken, node.inputs, strict=True)
        if constant is not None and given
    ]
    if not constants or len(constants) < len([*filter(None, node.inputs)]):
        return None
    made = walk.expressions.add(node, taken)
    if made is not None:
        is_zero = _keeps_zeros(node, constants[0].holds_zeros)
        is_part = node.operator == "Split" and constants[0].roots == {constants[0].name}
        if is_part or (node.operator == "Identity" and _IS_COPY.match(node.name)):
            made = [
                dataclasses.replace(constant, roots=frozenset({constant.name})) for constant in made
            ]
        return [dataclasses.replace(constant, is_zero=is_zero) for constant in made]
    if node.operator == "Identity" or _spreads(node, constants):
        return [constants[0]]
    entries = _entries(node, constants)
    if entries is not None:
        made = [_of_sizes(name, entries)]
        if node.operator == "Gather" and constants[1].shape == ():
            made = [dataclasses.replace(made[0], shape=())]
        return made
    closed = [None if constant is None else _closed(constant, walk.batch) for constant in taken]
    if closed != taken:
        return walk.expressions.add(node, closed)
    is_zero = _keeps_zeros(node, node.operator in _KEEP_ZEROS and walk.holds_zeros(constants[0]))
    if not is_zero and node.operator != "ConstantOfShape":
        return None
    extents = constants[-1].entries if node.operator in ("ConstantOfShape", "Expand") else None
    return [Constant(name, (), None, is_zero=is_zero, extents=extents)]


def _spreads(node: OnnxNode, constants: list[Constant]) -> bool:
    """Return whether a node repeats an array of the file for samples whose number is open, and for
    nothing else.
    """
    if node.operator != "Expand" or constants[0].sizes is not None or not constants[0].roots:
        return False
    shape, entries = constants[0].shape, constants[1].entries or ()
    return (
        len(entries) == len(shape) > 1
        and shape[0] == 1
        and entries[0] == "samples"
        and all(size in (1, own) for size, own in zip(entries[1:], shape[1:], strict=True))
    )


def _of_sizes(name: str, entries: tuple[int | str, ...]) -> Constant:
    numbers = tuple(entry for entry in entries if isinstance(entry, int))
    return Constant(
        name,
        (len(entries),),
        numbers if len(numbers) == len(entries) else None,
        entries,
        kind=INT64,
    )


def _closed(constant: Constant, samples: int | None) -> Constant:
    """Return sizes as numbers, if the number of samples is the only one that is open, and the file
    fixes it.
    """
    if samples is None or constant.sizes is None or not {*constant.sizes} & {"samples"}:
        return constant
    closed = tuple(samples if size == "samples" else size for size in constant.sizes)
    numbers = tuple(size for size in closed if isinstance(size, int))
    if len(numbers) < len(closed):
        return constant
    return dataclasses.replace(constant, numbers=numbers, sizes=None)


def _keeps_zeros(node: OnnxNode, takes_zeros: bool) -> bool:
    if node.operator == "ConstantOfShape":
        value = node.attributes.get("value")
        return value is None or (isinstance(value, Constant) and value.holds_zeros)
    return node.operator in _KEEP_ZEROS and takes_zeros


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
    if node.operator == "Equal" and len(rest) == 1 and len(rest[0]) == len(first):
        return tuple(int(one == other) for one, other in zip(first, rest[0], strict=True))
    if (
        node.operator == "Where"
        and len({len(sizes) for sizes in (first, *rest)}) == 1
        and {*first} <= {0, 1}
    ):
        return tuple(
            one if holds else other for holds, one, other in zip(first, *rest, strict=True)
        )
    if node.operator == "Concat":
        return tuple(entry for sizes in (first, *rest) for entry in sizes)
    if node.operator in _ARITHMETIC:
        return ("product",) * max(len(sizes) for sizes in (first, *rest))
    if node.operator == "ReduceProd":
        return first if len(first) == 1 else ("product",)
    numbers = [entry for sizes in rest for entry in sizes if isinstance(entry, int)]
    if len(numbers) < sum(map(len, rest)):
        return None
    if node.operator == "Gather" and all(-len(first) <= number < len(first) for number in numbers):
        return tuple(first[number] for number in numbers)
    if node.operator == "Slice" and len(numbers) >= 2 and all(len(sizes) == 1 for sizes in rest):
        return first[slice(*numbers[:2], *numbers[3:])]
    return None
