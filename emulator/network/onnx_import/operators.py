"""What ONNX's operators become: each an operation of the description, or nothing but another view of what it takes.

To flatten changes nothing, where a fully connected layer is a convolution over whole maps. Softmax at the end is left
out, for a description has its own. Operators are those of https://onnx.ai/onnx/operators/, of whatever version.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from ..description import Description
from . import keys
from .plain import OnnxGraph, OnnxNode
from .steps import FROM_IMAGES, to_description
from .walk import Value, Walk


def describe(graph: OnnxGraph, name: str) -> Description:
    """The description of a graph, called `name`.

    Raises:
        InputError: an operator that is not known, or does what a description cannot say; several inputs or outputs;
            sizes that are not fixed, or do not fit the weights; a cycle, a hole.
    """
    walk = Walk(graph)
    for node in graph.nodes:
        if node.operator == "Constant":
            walk.name(node, node.constant())
        elif node.operator == "Identity" and node.inputs[:1] and node.inputs[0] in walk.constants:
            walk.name(node, walk.constants[node.inputs[0]])
        elif node.operator in _KNOWN:
            walk.name(node, _KNOWN[node.operator](walk, node))
        else:
            raise node.refusal(f"unknown operator; known are Constant, {', '.join(_KNOWN)}")
    return to_description(name, graph.source, walk.images, walk.steps, walk.output().step, walk.expectations)


def _conv(walk: Walk, node: OnnxNode) -> Value:
    value, weight = walk.maps(node), walk.weight(node)
    made = walk.step(node, keys.conv(node, weight), value)
    walk.expect(node, value, channels=weight[1])
    return made


def _fc(walk: Walk, node: OnnxNode) -> Value:
    value = walk.take(node)
    if not value.is_flat:
        raise node.refusal("takes maps where it should take values, which Flatten makes of them")
    found, inputs = keys.fc(node, walk.weight(node))
    walk.expect(node, value, values=inputs)
    return walk.step(node, found, value, is_flat=True)


def _add(walk: Walk, node: OnnxNode) -> Value:
    if len(node.inputs) == 2 and sum(name in walk.constants for name in node.inputs) == 1:
        return _bias(walk, node)
    return _join(walk, node, "add")


def _bias(walk: Walk, node: OnnxNode) -> Value:
    """A constant that is added to what MatMul made."""
    [place] = [n for n, name in enumerate(node.inputs) if name not in walk.constants]
    value, bias = walk.take(node, place), walk.constants[node.inputs[1 - place]]
    matmul = None if value.step == FROM_IMAGES else walk.steps[value.step]
    if matmul is None or matmul.node.operator != "MatMul" or matmul.keys["bias"]:
        raise node.refusal("adds a constant; only the bias behind a MatMul is known")
    if math.prod(bias.shape) != matmul.keys["features"] or not walk.is_used_once(node.inputs[place]):
        raise node.refusal(
            "adds a constant that is not one bias for each feature of the MatMul before, and for it alone"
        )
    walk.steps[value.step] = dataclasses.replace(matmul, keys={**matmul.keys, "bias": True})
    return value


def _concat(walk: Walk, node: OnnxNode) -> Value:
    last = -1 if walk.take(node).is_flat else -3
    if (axis := node.integer("axis", 1)) not in (1, last):
        raise node.refusal(f"`axis` = {axis}: only channels, axis 1, are joined")
    return _join(walk, node, "concat")


def _join(walk: Walk, node: OnnxNode, kind: str) -> Value:
    first, *others = (walk.take(node, place) for place in range(max(1, len(node.inputs))))
    if any(other.is_flat != first.is_flat for other in others):
        raise node.refusal("joins maps and values that were flattened")
    return walk.step(node, {"type": kind}, first, *others, is_flat=first.is_flat) if others else first


def _relu(walk: Walk, node: OnnxNode) -> Value:
    value = walk.take(node)
    return walk.step(node, {"type": "relu"}, value, is_flat=value.is_flat)


def _dropout(walk: Walk, node: OnnxNode) -> Value:
    value, (rate, *_) = walk.take(node), (*walk.numbers(node, "ratio"), 0.5)
    return walk.step(node, {"type": "dropout", "rate": rate}, value, is_flat=value.is_flat)


def _batch_norm(walk: Walk, node: OnnxNode) -> Value:
    value = walk.take(node)
    walk.expect(node, value, channels=math.prod(walk.weight(node)))
    return walk.step(node, keys.batch_norm(node), value, is_flat=value.is_flat)


def _max_pool(walk: Walk, node: OnnxNode) -> Value:
    return walk.step(node, keys.max_pool(node), walk.maps(node))


def _average_pool(walk: Walk, node: OnnxNode) -> Value:
    return walk.step(node, keys.average_pool(node), walk.maps(node))


def _lrn(walk: Walk, node: OnnxNode) -> Value:
    return walk.step(node, keys.lrn(node), walk.maps(node))


def _global_average_pool(walk: Walk, node: OnnxNode) -> Value:
    return walk.step(node, {"type": "global-average-pool"}, walk.maps(node))


def _reduce_mean(walk: Walk, node: OnnxNode) -> Value:
    _check_axes(walk, node)
    is_flat = not node.integer("keepdims", 1)
    return dataclasses.replace(_global_average_pool(walk, node), is_flat=is_flat)


def _squeeze(walk: Walk, node: OnnxNode) -> Value:
    _check_axes(walk, node)
    return dataclasses.replace(walk.maps(node), is_flat=True)


def _check_axes(walk: Walk, node: OnnxNode) -> None:
    axes = walk.integers(node, "axes")
    if sorted(axes) not in ([2, 3], [-2, -1]):
        raise node.refusal(f"`axes` = {list(axes)}: only rows and columns, axes 2 and 3, are known")


def _flatten(walk: Walk, node: OnnxNode) -> Value:
    if (axis := node.integer("axis", 1)) != 1:
        raise node.refusal(f"`axis` = {axis}: only all values of a sample, axis 1, are made one row")
    return dataclasses.replace(walk.take(node), is_flat=True)


def _reshape(walk: Walk, node: OnnxNode) -> Value:
    value, shape = walk.take(node), walk.integers(node, "shape")
    if len(shape) != 2 or shape[0] not in (0, -1, walk.samples) or shape == (-1, -1):
        raise node.refusal(f"to the shape {list(shape)}: only to one row of values for each sample, [0, -1], is known")
    if shape[1] != -1:
        walk.expect(node, value, values=shape[1])
    return dataclasses.replace(value, is_flat=True)


def _softmax(walk: Walk, node: OnnxNode) -> Value:
    value = walk.take(node)
    axis = node.integer("axis", -1 if value.is_flat else 1)
    if axis != 1 and not (value.is_flat and axis == -1):
        raise node.refusal(f"`axis` = {axis}: only over classes, axis 1, is known")
    return dataclasses.replace(value, is_closed=True)


_KNOWN: dict[str, Callable[[Walk, OnnxNode], Value]] = {
    "Add": _add,
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Concat": _concat,
    "Conv": _conv,
    "Dropout": _dropout,
    "Flatten": _flatten,
    "Gemm": _fc,
    "GlobalAveragePool": _global_average_pool,
    "Identity": Walk.take,
    "LRN": _lrn,
    "LogSoftmax": _softmax,
    "MatMul": _fc,
    "MaxPool": _max_pool,
    "ReduceMean": _reduce_mean,
    "Relu": _relu,
    "Reshape": _reshape,
    "Softmax": _softmax,
    "Squeeze": _squeeze,
    "Sum": _add,
}
