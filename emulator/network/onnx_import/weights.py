"""The weights of an ONNX file, as the layers have them that its nodes become."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..graph import resolve
from ..layer import Network
from ..onnx_graph import MAPS, Axes, OnnxGraph, OnnxNode, Step, Walk
from ..operation import LayerOperation
from .operators import described, in_order, walked

Take = Callable[[OnnxNode, str], NDArray[Any]]
"""Function that returns an array that a node takes, by its name."""


def weights_of(graph: OnnxGraph, name: str) -> dict[str, dict[str, NDArray[Any]]]:
    """Return the weights by layer and name; layers are called as by `describe`.

    Raises:
        InputError: as of `describe`, or a weight is neither an array of the file nor computed of
            such alone.
    """
    walk = walked(graph)
    return dict(weights_of_walk(walk, resolve(described(walk, graph, name), graph.source)))


def weights_of_walk(walk: Walk, network: Network) -> Iterator[tuple[str, dict[str, NDArray[Any]]]]:
    """Yield the weights of each layer of the network that a graph became which was walked through;
    what they were computed of is not kept.

    Raises:
        InputError: a weight is neither an array of the graph nor computed of such alone.
    """
    layers = iter(network.layers)
    name, own, learners = "", dict[str, NDArray[Any]](), 0

    def take(node: OnnxNode, value: str) -> NDArray[Any]:
        known = walk.constants.get(value)
        try:
            return walk.expressions.value(value if known is None else known.name)
        except KeyError:
            raise node.refusal(
                f"takes {value!r}, which cannot be computed of arrays of the file alone"
            ) from None

    for step in (walk.steps[n] for n in in_order(walk.steps)):
        if issubclass(step.kind, LayerOperation):
            layer = next(layers)
            if name:
                yield name, own
                walk.expressions.forget()
            name, own, learners = layer.name, _of_layer(step, take), 0
            if "weight" in own and own["weight"].size == math.prod(layer.weight_shape):
                own["weight"] = _by_maps(own["weight"], layer.weight_shape, step.order)
        elif step.arrays:
            learners += 1
            end = str(learners) if learners > 1 else ""
            own.update({f"{key}{end}": array for key, array in _arrays(step, take).items()})
    if name:
        yield name, own


def _by_maps(weight: NDArray[Any], shape: tuple[int, ...], order: Axes | None) -> NDArray[Any]:
    """Return weights in the layer's shape (oc, ic, kh, kw), from inputs that were flattened in the
    order of axes.
    """
    if order is None or set(order[1:]) - set(MAPS[1:]):
        return weight.reshape(shape)
    sizes = dict(zip(MAPS[1:], shape[1:], strict=True))
    there = [*order[1:], *(axis for axis in sizes if axis not in order)]
    places = [1 + there.index(axis) for axis in sizes]
    return weight.reshape(shape[0], *(sizes[axis] for axis in there)).transpose(0, *places)


def _arrays(step: Step, take: Take) -> dict[str, NDArray[Any]]:
    """Return the parameters of a step's operation, from its arrays."""
    arrays = {key: take(step.node, name) for key, name in step.arrays.items()}
    return dict(step.kind.from_arrays(step.node, arrays))


def _of_layer(step: Step, take: Take) -> dict[str, NDArray[Any]]:
    """Return a layer's weights; of one that several became, with its output channels as the step
    has them.
    """
    if not step.parts:
        arrays = _arrays(step, take)
        if step.inputs is not None:
            arrays["weight"] = arrays["weight"][:, np.argsort(step.inputs)]
        return arrays
    places, parts = list(step.channels), [_of_layer(part, take) for part in step.parts]
    arrays = {"weight": np.concatenate([part["weight"] for part in parts])[places]}
    if step.keys["bias"]:
        zeros = (np.zeros(len(part["weight"]), np.float32) for part in parts)
        biases = [part.get("bias", none) for part, none in zip(parts, zeros, strict=True)]
        arrays["bias"] = np.concatenate(biases)[places]
    return arrays
