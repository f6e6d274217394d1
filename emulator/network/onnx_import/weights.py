"""The weights of an ONNX file, as the layers have them that its nodes become."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..graph import resolve
from ..onnx_graph import MAPS, Axes, OnnxGraph, OnnxNode, Step
from ..operation import LayerOperation
from ..operations.tokens import LayerNorm, Tokens
from .operators import described, in_order, walked

Arrays = dict[str, NDArray[Any]]
Take = Callable[[OnnxNode, str], NDArray[Any]]
"""Function that returns an array that a node takes, by its name."""

_GATES = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2)}
"""Places of PyTorch's gates among ONNX's: i, o, f, c of an LSTM; z, r, h of a GRU."""


def weights_of(graph: OnnxGraph, name: str) -> dict[str, Arrays]:
    """Return the weights by layer and name; layers are called as by `describe`.

    Raises:
        InputError: as of `describe`, or a weight is neither an array of the file nor computed of such alone.
    """
    walk = walked(graph)
    layers = iter(resolve(described(walk, graph, name), graph.source).layers)
    weights: dict[str, Arrays] = {}
    own, learners = dict[str, NDArray[Any]](), 0

    def take(node: OnnxNode, value: str) -> NDArray[Any]:
        known = walk.constants.get(value)
        try:
            return walk.expressions.value(value if known is None else known.name)
        except KeyError:
            raise node.refusal(f"takes {value!r}, which cannot be computed of arrays of the file alone") from None

    for step in (walk.steps[n] for n in in_order(walk.steps)):
        if issubclass(step.kind, LayerOperation):
            layer = next(layers)
            own, learners = _of_layer(step, take, graph), 0
            weights[layer.name] = own
            if "weight" in own and own["weight"].size == math.prod(layer.weight_shape):
                own["weight"] = _by_maps(own["weight"], layer.weight_shape, step.order)
        elif step.arrays:
            learners += 1
            end = str(learners) if learners > 1 else ""
            arrays = {key: take(step.node, value).reshape(-1) for key, value in step.arrays.items()}
            if step.kind is Tokens:  # it may be repeated for samples
                arrays["class_token"] = arrays["class_token"][: layer.channels]
            if step.kind is LayerNorm and "shift" not in arrays:
                arrays["shift"] = np.zeros_like(arrays["scale"])
            own.update({f"{key}{end}": array for key, array in arrays.items()})
    return weights


def _by_maps(weight: NDArray[Any], shape: tuple[int, ...], order: Axes | None) -> NDArray[Any]:
    """Return weights in the layer's shape (oc, ic, kh, kw), from inputs that were flattened in the order of axes."""
    if order is None or set(order[1:]) - set(MAPS[1:]):
        return weight.reshape(shape)
    sizes = dict(zip(MAPS[1:], shape[1:], strict=True))
    there = [*order[1:], *(axis for axis in sizes if axis not in order)]
    places = [1 + there.index(axis) for axis in sizes]
    return weight.reshape(shape[0], *(sizes[axis] for axis in there)).transpose(0, *places)


def _of_layer(step: Step, take: Take, graph: OnnxGraph) -> Arrays:
    node = step.node
    if step.kind.has_pg is False:
        return {}
    if step.parts:
        return _merged(step, take, graph)
    if node.operator in _GATES:
        return _recurrent(step, take)
    if node.operator == "Gather":  # an embedding, of weights (symbols, features)
        return {"weight": take(node, node.inputs[0]).T}
    weight = take(node, node.inputs[1])
    turned = node.operator == "MatMul" or (node.operator == "Gemm" and not node.integer("transB", 0))
    arrays = {"weight": weight.T if turned else weight}
    if step.keys["bias"]:
        name = _added(graph, node.outputs[0]) if node.operator == "MatMul" else node.inputs[2]
        arrays["bias"] = take(node, name).reshape(-1)
    return arrays


def _merged(step: Step, take: Take, graph: OnnxGraph) -> Arrays:
    """Return the weights of a layer that several became, with its output channels as the step has them."""
    places, parts = list(step.channels), [_of_layer(part, take, graph) for part in step.parts]
    arrays = {"weight": np.concatenate([part["weight"] for part in parts])[places]}
    if step.keys["bias"]:
        zeros = (np.zeros(len(part["weight"]), np.float32) for part in parts)
        biases = [part.get("bias", none) for part, none in zip(parts, zeros, strict=True)]
        arrays["bias"] = np.concatenate(biases)[places]
    return arrays


def _added(graph: OnnxGraph, made: str) -> str:
    """Return the name of what is added to what a MatMul made: its bias."""
    [name] = [name for node in graph.nodes if made in node.inputs for name in node.inputs if name != made]
    return name


def _recurrent(step: Step, take: Take) -> Arrays:
    """Return a recurrent layer's arrays by PyTorch's names, from ONNX's of both directions."""
    order = _GATES[step.node.operator]
    w, r, b = (take(step.node, name) for name in step.node.inputs[1:4])
    b_w, b_r = np.split(b, 2, axis=1)
    arrays: Arrays = {}
    for direction, end in zip(range(len(w)), ("", "_reverse"), strict=False):
        for name, array in (("weight_ih", w), ("weight_hh", r), ("bias_ih", b_w), ("bias_hh", b_r)):
            gates = np.split(array[direction], len(order))
            arrays[f"{name}_l0{end}"] = np.concatenate([gates[place] for place in order])
    return arrays
