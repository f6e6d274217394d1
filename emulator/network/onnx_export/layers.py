"""Nodes of layers with weights: convolutions, fully connected and recurrent layers, embeddings."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..layer import Layer
from ..operations.conv import Conv
from ..operations.embedding import Embedding
from ..operations.fc import Fc
from ..operations.gru import Gru
from ..recurrent import Recurrent
from .nodes import Arrays, Form, Nodes

GATES = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2)}
"""Places of ONNX's gates among PyTorch's: i, f, g, o of an LSTM; r, z, n of a GRU."""


def add_layer(nodes: Nodes, layer: Layer, weights: Arrays) -> None:
    """Add the nodes of a layer; the one that has its weights is called as the layer.

    Raises:
        InputError: ONNX has no words for it.
    """
    of, x, made = layer.operation, nodes.of(layer.reads.number), f"{layer.name}/made"
    form = nodes.form(x)
    if isinstance(of, Recurrent):
        form = _recurrent(nodes, layer, of, weights, nodes.steps(x, f"{layer.name}/steps"), made)
    elif isinstance(of, Embedding) and form is Form.SYMBOLS:
        table = nodes.array(f"{layer.name}.weight", weights["weight"].reshape(of.features, -1).T)
        nodes.add("Gather", [table, x], made, layer.name, axis=0)
        form = Form.STEPS
    elif isinstance(of, Conv) and form is Form.MAPS:
        window = layer.window
        keys = {"kernel_shape": window.kernel, "strides": window.stride, "pads": window.pad * 2, "group": of.groups}
        weight = nodes.array(f"{layer.name}.weight", weights["weight"])
        nodes.add("Conv", [x, weight, *_bias(nodes, layer, weights)], made, layer.name, **keys)
    elif isinstance(of, Conv) and form is Form.STEPS and _is_of_each_step(layer, of):
        _each_step(nodes, layer, weights, x, made)
    elif isinstance(of, Fc):
        weight = nodes.array(f"{layer.name}.weight", weights["weight"].reshape(of.features, -1))
        row = nodes.row(x, f"{layer.name}/flat")
        nodes.add("Gemm", [row, weight, *_bias(nodes, layer, weights)], made, layer.name, transB=1)
        form = Form.ROW
    else:
        raise nodes.refusal(f"{of.type} ({layer.name}) on {form.value}")
    nodes.name(layer.makes, made, form)


def _bias(nodes: Nodes, layer: Layer, weights: Arrays) -> list[str]:
    return [nodes.array(f"{layer.name}.bias", weights["bias"])] if "bias" in weights else []


def _is_of_each_step(layer: Layer, of: Conv) -> bool:
    window = layer.window
    return window.kernel == window.stride == (1, 1) and window.pad == (0, 0) and of.groups == 1


def _each_step(nodes: Nodes, layer: Layer, weights: Arrays, x: str, made: str) -> None:
    """Add a convolution of one place over a sequence: a product for each step."""
    weight = nodes.array(f"{layer.name}.weight", weights["weight"].reshape(layer.channels, -1).T)
    biases = _bias(nodes, layer, weights)
    product = nodes.add("MatMul", [x, weight], f"{layer.name}/product" if biases else made, layer.name)
    if biases:
        nodes.add("Add", [product, *biases], made)


def _recurrent(nodes: Nodes, layer: Layer, of: Recurrent, weights: Arrays, x: str, made: str) -> Form:
    """Add a recurrent layer; ONNX has time steps first, and directions on an axis of their own."""
    name = layer.name
    if of.projection is not None:
        raise nodes.refusal(f"{of.type} with a projection ({name})")
    ends = ("", "_reverse")[: of.directions]

    def stacked(key: str) -> NDArray[np.float32]:
        return np.stack([_in_order(weights[f"{key}_l0{end}"], GATES[of.type]) for end in ends])

    arrays = [
        nodes.array(f"{name}.W", stacked("weight_ih")),
        nodes.array(f"{name}.R", stacked("weight_hh")),
        nodes.array(f"{name}.B", np.concatenate([stacked("bias_ih"), stacked("bias_hh")], axis=1)),
    ]
    keys: dict[str, Any] = {"hidden_size": of.units, "direction": "bidirectional" if of.bidirectional else "forward"}
    if isinstance(of, Gru):
        keys["linear_before_reset"] = int(of.reset == "after")
    turned = nodes.add("Transpose", [x], f"{name}/turned", perm=[1, 0, 2])
    outputs = nodes.add(of.type.upper(), [turned, *arrays], f"{name}/outputs", name, **keys)
    apart = nodes.add("Transpose", [outputs], f"{name}/apart", perm=[2, 0, 1, 3])
    nodes.add("Reshape", [apart, nodes.numbers(f"{name}.shape", 0, layer.output[1], layer.output[0])], made)
    return Form.STEPS


def _in_order(array: NDArray[np.float32], places: tuple[int, ...]) -> NDArray[np.float32]:
    gates = np.split(array, len(places))
    return np.concatenate([gates[place] for place in places])
