"""Conversion of ONNX operators: each becomes an operation of the description, or merely a view of its input.

An operation's file names the operators that become it. The others are here: flattening changes nothing, because a fully
connected layer is a convolution over whole maps. Softmax at the end is left out, because a description has its own.
Operators are those of https://onnx.ai/onnx/operators/, of any version.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping

from ..description import Description
from ..onnx_graph import OnnxGraph, OnnxNode, Value, Walk, check_spatial_axes
from ..registry import operation_types
from .steps import to_description


def describe(graph: OnnxGraph, name: str) -> Description:
    """Return the description of a graph, called `name`.

    Raises:
        InputError: an operator that is unknown, or does what a description cannot express; several inputs or outputs;
            sizes that are not fixed, or do not fit the weights; a cycle; a value that is not made or not used.
    """
    walk = Walk(graph)
    for node in graph.nodes:
        if node.operator == "Constant":
            walk.name(node, node.constant())
        elif node.operator == "Identity" and node.inputs[:1] and node.inputs[0] in walk.constants:
            walk.name(node, walk.constants[node.inputs[0]])
        elif node.operator in _known():
            walk.name(node, _known()[node.operator](walk, node))
        else:
            raise node.refusal(f"unknown operator; known are Constant, {', '.join(_known())}")
    return to_description(name, graph.source, walk.images, walk.steps, walk.output().step, walk.expectations)


def _squeeze(walk: Walk, node: OnnxNode) -> Value:
    check_spatial_axes(walk, node)
    return dataclasses.replace(walk.maps(node), is_flat=True)


def _flatten(walk: Walk, node: OnnxNode) -> Value:
    if (axis := node.integer("axis", 1)) != 1:
        raise node.refusal(f"`axis` = {axis}: only flattening from axis 1 on is supported")
    return dataclasses.replace(walk.take(node), is_flat=True)


def _reshape(walk: Walk, node: OnnxNode) -> Value:
    value, shape = walk.take(node), walk.integers(node, "shape")
    if len(shape) != 2 or shape[0] not in (0, -1, walk.samples) or shape == (-1, -1):
        raise node.refusal(
            f"to the shape {list(shape)}: only to one row of values for each sample, [0, -1], is supported"
        )
    if shape[1] != -1:
        walk.expect(node, value, values=shape[1])
    return dataclasses.replace(value, is_flat=True)


def _softmax(walk: Walk, node: OnnxNode) -> Value:
    value = walk.take(node)
    axis = node.integer("axis", -1 if value.is_flat else 1)
    if axis != 1 and not (value.is_flat and axis == -1):
        raise node.refusal(f"`axis` = {axis}: only over classes, axis 1, is supported")
    return dataclasses.replace(value, is_closed=True)


_VIEWS: Mapping[str, Callable[[Walk, OnnxNode], Value]] = {
    "Flatten": _flatten,
    "Identity": Walk.take,
    "LogSoftmax": _softmax,
    "Reshape": _reshape,
    "Softmax": _softmax,
    "Squeeze": _squeeze,
}


@functools.cache
def _known() -> Mapping[str, Callable[[Walk, OnnxNode], Value]]:
    """Return the converters of all operators but Constant, by name."""
    known = {name: kind.from_onnx for kind in operation_types().values() for name in kind.onnx}
    return dict(sorted({**_VIEWS, **known}.items()))
