"""Conversion of ONNX operators: each becomes an operation of the description, or merely a view of its input.

An operation's file names the operators that become it. The others are here: flattening changes nothing, because a fully
connected layer is a convolution over whole maps. Softmax at the end is left out, because a description has its own.
Operators are those of https://onnx.ai/onnx/operators/, of any version.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..description import Description
from ..description import node as node_of
from ..onnx_graph import OnnxGraph, OnnxNode, Value, Walk, folded
from ..operation import Operation
from ..registry import operation_types
from ..shape import Shape
from . import sequences, views
from .pytorch import note_of
from .steps import to_description


def describe(graph: OnnxGraph, name: str) -> tuple[Description, str]:
    """Return the description of a graph, called `name`, and one line that the user should see, or nothing.

    Raises:
        InputError: an operator that is unknown, or does what a description cannot express; several inputs or outputs;
            sizes that are not fixed, or do not fit the weights; a cycle; a value that is not made or not used.
    """
    walk = walked(graph)
    return described(walk, graph, name), note_of(walk)


def described(walk: Walk, graph: OnnxGraph, name: str) -> Description:
    """Return the description of a graph that was walked through; it raises as `describe`."""
    return to_description(name, graph.source, walk.input_shape(), walk.steps, walk.output().step, walk.expectations)


def walked(graph: OnnxGraph) -> Walk:
    """Return the walk through all nodes of a graph; it raises as `describe`."""
    walk = Walk(graph, _output_shape)
    for node in graph.nodes:
        if node.operator == "Constant":
            walk.name(node, node.constant())
        elif (constants := folded(walk, node)) is not None:
            for place, constant in enumerate(constants):
                walk.name(node, constant, place)
        elif node.operator in _known():
            walk.name(node, _known()[node.operator](walk, node))
        else:
            raise node.refusal(_problem(node.operator))
    return walk


def _output_shape(kind: type[Operation], keys: dict[str, Any], where: str, taken: Sequence[Shape]) -> Shape:
    return node_of(kind, keys, where).operation.output(taken)


def _same(walk: Walk, node: OnnxNode) -> Value:
    return walk.take(node, states=True)


def _squeeze(walk: Walk, node: OnnxNode) -> Value:
    value, places = walk.take(node, states=True), walk.integers(node, "axes")
    view = views.squeeze(walk, node, value, places)
    return sequences.squeeze(walk, node, value, places) if view is None else view


def _flatten(walk: Walk, node: OnnxNode) -> Value:
    if (axis := node.integer("axis", 1)) != 1:
        raise node.refusal(f"`axis` = {axis}: only flattening from axis 1 on is supported")
    value = walk.take(node)
    if walk.axes_of(value)[0] != "samples":
        raise node.refusal(f"flattens {' x '.join(walk.axes_of(value))}, where samples should come first")
    return walk.flat(value)


def _reshape(walk: Walk, node: OnnxNode) -> Value:
    value, found = walk.take(node), walk.constant(node, 1)
    if (
        found is not None
        and found.entries is not None
        and (view := views.reshape(walk, node, value, found.entries)) is not None
    ):
        return view
    if (sequence := sequences.reshape(walk, node)) is not None:
        return sequence
    shape = found.sizes if found is not None and found.sizes is not None else walk.integers(node, "shape")
    if len(shape) != 2 or shape[0] not in (0, -1, walk.batch, "samples") or shape == (-1, -1):
        raise node.refusal(
            f"to the shape {list(shape)}: only to one row of values for each sample, [0, -1], is supported"
        )
    if isinstance(shape[1], int) and shape[1] != -1:
        walk.expect(node, value, values=shape[1])
    return walk.flat(value)


def _softmax(walk: Walk, node: OnnxNode) -> Value:
    value = walk.take(node)
    axes = walk.axes_of(value)
    axis = node.integer("axis", 1 if value.axes is None and not value.is_flat else -1)
    if value.axes is not None and -len(axes) <= axis < len(axes) and axes[axis] == "channels":
        return dataclasses.replace(value, is_closed=True)
    if axis != 1 and not (value.is_flat and axis == -1):
        raise node.refusal(f"`axis` = {axis}: only over classes, axis 1, is supported")
    return dataclasses.replace(value, is_closed=True)


_VIEWS: Mapping[str, Callable[[Walk, OnnxNode], Value]] = {
    "Flatten": _flatten,
    "Gather": sequences.gather,
    "Identity": _same,
    "LogSoftmax": _softmax,
    "Pad": views.pad,
    "Reshape": _reshape,
    "Slice": sequences.cut,
    "Softmax": _softmax,
    "Squeeze": _squeeze,
    "Transpose": sequences.transpose,
    "Unsqueeze": views.unsqueeze,
}


def _problem(operator: str) -> str:
    """Return why there is no converter of an operator, and what to do in its place."""
    if operator.startswith("Random") or operator == "Bernoulli":
        return "draws numbers at random, as dropout does with inplace=True; only dropout without it is supported"
    if "Quantize" in operator or operator.rpartition(".")[2].startswith("QLinear") or operator.endswith("Integer"):
        return "belongs to a quantised network; only networks in single precision are supported: export it before"
    return f"unknown operator; known are Constant, {', '.join(_known())}"


@functools.cache
def _known() -> Mapping[str, Callable[[Walk, OnnxNode], Value]]:
    """Return the converters of all operators but Constant, by name."""
    known = {name: kind.from_onnx for kind in operation_types().values() for name in kind.onnx}
    return dict(sorted({**_VIEWS, **known}.items()))
