"""A network with its weights as an ONNX model: convolutions, fully connected layers, and what usually follows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common import InputError
from .layer import Layer, Network, SfuStep
from .operations.batch_norm import BatchNorm
from .operations.conv import Conv
from .operations.dropout import Dropout
from .operations.fc import Fc
from .operations.joins import Add, Concat
from .operations.leaky_relu import LeakyRelu
from .operations.pool import AveragePool, MaxPool
from .operations.relu import Relu
from .operations.relu6 import LIMIT, Relu6

Arrays = Mapping[str, NDArray[np.float32]]

_OPSET, _IR = 17, 8
_INPUT, _OUTPUT = "images", "logits"
_NORMAL = ("scale", "shift", "mean", "variance")
_KNOWN = {Add, AveragePool, BatchNorm, Concat, Dropout, LeakyRelu, MaxPool, Relu, Relu6}


def onnx_image(weights: Mapping[str, Arrays], network: Network, blame: str) -> bytes:
    """Return the content of an ONNX file: the network up to its logits, with `weights` by layer and name.

    Nodes of layers are called as the layers, so that an import gives them the same names; samples are any number.
    `blame` begins messages.

    Raises:
        InputError: the package onnx is not installed, or an operation cannot be exported.
    """
    try:
        from onnx import TensorProto, helper
    except ImportError:
        raise InputError(f"{blame}: ONNX files need the package onnx: pip install 'emuchain[onnx]'") from None
    graph = _Graph(network, blame)
    for layer in network.layers:
        graph.layer(layer, weights[layer.name])
    logits = graph.flat(graph.names[_last(network.layers[-1])], _OUTPUT)
    images = helper.make_tensor_value_info(_INPUT, TensorProto.FLOAT, ["samples", *network.input])
    made = helper.make_tensor_value_info(logits, TensorProto.FLOAT, ["samples", network.classes])
    model = helper.make_model(
        helper.make_graph(graph.nodes, network.name, [images], [made], graph.arrays),
        producer_name="emuchain",
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_IR,
    )
    image: bytes = model.SerializeToString()
    return image


def _last(layer: Layer) -> int:
    """Return the number of the tensor that the last layer hands on: the logits."""
    [tensor] = layer.hands_on
    return tensor.number


class _Graph:
    """Nodes and arrays so far, what each tensor of the network is called, and which are rows of values, not maps."""

    def __init__(self, network: Network, blame: str) -> None:
        self.nodes: list[Any] = []
        self.arrays: list[Any] = []
        self.names = {0: _INPUT}
        self._flat: set[str] = set()
        self._network, self._blame = network, blame

    def layer(self, layer: Layer, weights: Arrays) -> None:
        """Add a layer, and the operations of its SFU."""
        of, name, x = layer.operation, layer.name, self.names[layer.reads.number]
        made, weight = f"{name}/made", weights.get("weight", np.empty(0, np.float32))
        biases = [self._array(f"{name}.bias", weights["bias"])] if "bias" in weights else []
        if isinstance(of, Conv) and x not in self._flat:
            window = layer.window
            keys = {"kernel_shape": window.kernel, "strides": window.stride, "pads": window.pad * 2}
            self._node("Conv", [x, self._array(f"{name}.weight", weight), *biases], made, name, **keys, group=of.groups)
        elif isinstance(of, Fc):
            rows = self._array(f"{name}.weight", weight.reshape(len(weight), -1))
            self._node("Gemm", [self.flat(x, f"{name}/flat"), rows, *biases], made, name, transB=1)
            self._flat.add(made)
        else:
            raise self._refusal(of.type)
        self.names[layer.makes.number] = made
        normal = 0
        for place, step in enumerate(layer.sfu):
            normal += isinstance(step.operation, BatchNorm)
            self._step(step, f"{name}/{place}", weights, str(normal) if normal > 1 else "")

    def _step(self, step: SfuStep, name: str, weights: Arrays, end: str) -> None:
        of, taken = step.operation, [self.names[tensor.number] for tensor in step.reads]
        operator, keys = type(of).onnx[0] if type(of) in _KNOWN else "", dict[str, Any]()
        if isinstance(of, MaxPool | AveragePool):
            keys = {"kernel_shape": of.kernel, "strides": of.step, "pads": of.pad * 2}
            if isinstance(of, AveragePool):
                keys["count_include_pad"] = int(of.count_include_pad)
        elif isinstance(of, BatchNorm):
            taken += [self._array(f"{name}.{key}", weights[f"{key}{end}"]) for key in _NORMAL]
            keys = {"epsilon": of.epsilon, "momentum": 1 - of.momentum}
        elif isinstance(of, Relu6):
            taken += [self._array(f"{name}.{at:g}", np.array(at, np.float32)) for at in (0.0, LIMIT)]
        elif isinstance(of, Dropout):
            taken.append(self._array(f"{name}.rate", np.array(of.rate, np.float32)))
        elif isinstance(of, LeakyRelu):
            keys = {"alpha": of.slope}
        elif isinstance(of, Concat):
            keys = {"axis": 1}
        rows = [each in self._flat for each in taken[: len(step.reads)]]
        if not operator or (any(rows) and (not all(rows) or isinstance(of, MaxPool | AveragePool))):
            raise self._refusal(of.type)
        self._node(operator, taken, name, name, **keys)
        self._flat |= {name} if all(rows) else set()
        self.names[step.makes.number] = name

    def flat(self, x: str, name: str) -> str:
        """Return the name of the same values as one row for each sample; where they are maps, that is `name`."""
        if x in self._flat:
            return x
        self._node("Flatten", [x], name, name, axis=1)
        self._flat.add(name)
        return name

    def _node(self, operator: str, inputs: Sequence[str], made: str, name: str, **keys: Any) -> None:
        from onnx import helper

        self.nodes.append(helper.make_node(operator, inputs, [made], name=name, **keys))

    def _array(self, name: str, array: NDArray[Any]) -> str:
        from onnx import numpy_helper

        self.arrays.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def _refusal(self, kind: str) -> InputError:
        return InputError(
            f"{self._blame}: {self._network.name} has {kind} where ONNX files cannot be written; a .safetensors file"
            " takes all weights"
        )
