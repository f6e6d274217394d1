"""What tests of ONNX files share: models built node by node, and the networks that emuchain makes
of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from emuchain.emulator.common import InputError
from emuchain.emulator.network import Network, load_network

onnx = pytest.importorskip(
    "onnx", reason="onnx, which reads and builds the files of these tests, is not installed"
)

OPSET = 17


class Graph:
    """Builds an ONNX model. Weights have shapes only; the model says that their values are in
    another file.
    """

    def __init__(self, *sizes: int | str) -> None:
        self.inputs = [
            onnx.helper.make_tensor_value_info(
                "x", onnx.TensorProto.FLOAT, sizes or ("n", 3, 32, 32)
            )
        ]
        self.outputs: list[Any] = []
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.last = "x"

    def weight(self, *shape: int) -> str:
        """A constant of that shape."""
        name = f"w{len(self.constants)}"
        external = onnx.TensorProto.EXTERNAL
        data_type = onnx.TensorProto.FLOAT
        self.constants.append(
            onnx.TensorProto(name=name, dims=shape, data_type=data_type, data_location=external)
        )
        return name

    def numbers(self, *numbers: float) -> str:
        """A constant whose numbers are in the file."""
        name = f"w{len(self.constants)}"
        kind = (
            onnx.TensorProto.INT64
            if all(isinstance(n, int) for n in numbers)
            else onnx.TensorProto.FLOAT
        )
        self.constants.append(onnx.helper.make_tensor(name, kind, [len(numbers)], numbers))
        return name

    def array(self, array: Any, name: str = "") -> str:
        """A constant whose values are in the file."""
        name = name or f"w{len(self.constants)}"
        self.constants.append(onnx.numpy_helper.from_array(array, name))
        return name

    def node(
        self,
        operator: str,
        *takes: str,
        name: str = "",
        said: Mapping[str, str] | None = None,
        **attributes: Any,
    ) -> str:
        """Add a node, which takes the last one's result or values by name; return the name of its
        result.

        `said` is what PyTorch's exporter tells of it.
        """
        made = f"{operator.lower()}:{len(self.nodes)}"
        found = onnx.helper.make_node(
            operator, list(takes or (self.last,)), [made], name, **attributes
        )
        for key, value in (said or {}).items():
            found.metadata_props.add(key=key, value=value)
        self.nodes.append(found)
        self.last = made
        return made

    def conv(
        self,
        name: str,
        inputs: int,
        channels: int,
        kernel: int,
        x: str = "",
        bias: bool = True,
        **keys: Any,
    ) -> str:
        """A square convolution that keeps the size, unless `keys` say otherwise."""
        keys = {"pads": [kernel // 2] * 4, **keys}
        takes = [x or self.last, self.weight(channels, inputs, kernel, kernel)]
        return self.node(
            "Conv", *takes, *([self.weight(channels)] if bias else []), name=name, **keys
        )

    def pool(self, kernel: int, stride: int, x: str = "", **keys: Any) -> str:
        """A square max-pool."""
        return self.node(
            "MaxPool", x or self.last, kernel_shape=[kernel] * 2, strides=[stride] * 2, **keys
        )

    def norm(self, channels: int) -> str:
        """Batch normalisation."""
        return self.node(
            "BatchNormalization", self.last, *(self.weight(channels) for _ in range(4))
        )

    def fc(self, name: str, inputs: int, features: int) -> str:
        """A fully connected layer, as PyTorch has it."""
        return self.node(
            "Gemm",
            self.last,
            self.weight(features, inputs),
            self.weight(features),
            name=name,
            transB=1,
        )

    def model(self, producer: str = "") -> bytes:
        """The file, which `producer` exported."""
        outputs = self.outputs or [
            onnx.helper.make_tensor_value_info(self.last, onnx.TensorProto.FLOAT, None)
        ]
        graph = onnx.helper.make_graph(self.nodes, "graph", self.inputs, outputs, self.constants)
        made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", OPSET)])
        made.producer_name = producer
        return made.SerializeToString()


def load(folder: Path, model: Graph | bytes, name: str = "mine") -> Network:
    """The network that emuchain makes of a model."""
    path = folder / f"{name}.onnx"
    path.write_bytes(model if isinstance(model, bytes) else model.model())
    return load_network(str(path))


def resnet8() -> Graph:
    """Three residual blocks, the last two with projections."""
    graph = Graph("n", 3, 32, 32)
    graph.conv("conv1", 3, 16, 3, bias=False)
    graph.norm(16)
    block, before = graph.node("Relu"), 16
    for stage, channels in ((2, 16), (3, 32), (4, 64)):
        short, stride = block, [channels // before] * 2
        if channels != before:
            graph.conv(f"shortcut{stage}", before, channels, 1, block, bias=False, strides=stride)
            short = graph.norm(channels)
        graph.conv(f"conv{stage}_1", before, channels, 3, block, bias=False, strides=stride)
        graph.norm(channels)
        graph.node("Relu")
        graph.conv(f"conv{stage}_2", channels, channels, 3, bias=False)
        graph.node("Add", graph.norm(channels), short)
        block, before = graph.node("Relu"), channels
    graph.node("GlobalAveragePool")
    graph.node("Flatten")
    graph.fc("fc", 64, 10)
    return graph


def small(*middle: Callable[[Graph], object], size: int = 8) -> Graph:
    """A convolution of 4 channels on 8x8 images, the nodes under test, the average of whole maps,
    and 5 classes.
    """
    graph = Graph("n", 3, size, size)
    graph.conv("conv", 3, 4, 3)
    for part in middle:
        part(graph)
    graph.node("GlobalAveragePool")
    graph.node("Flatten")
    graph.fc("fc", 4, 5)
    return graph


def op(operator: str, **attributes: Any) -> Callable[[Graph], object]:
    """A node that takes the last one's result."""
    return lambda graph: graph.node(operator, **attributes)


def ending(*parts: Callable[[Graph], object]) -> Graph:
    """A convolution of 4 channels on 8x8 images, and the end under test."""
    graph = Graph("n", 3, 8, 8)
    graph.conv("conv", 3, 4, 3)
    for part in parts:
        part(graph)
    return graph


def refused_or_not(folder: Path, model: Graph | bytes) -> str:
    """Return the one line with which a model is refused, or '' where it becomes a network."""
    try:
        network = load(folder, model)
    except InputError as error:
        assert len(str(error).splitlines()) == 1
        assert str(error).startswith(f"{folder / 'mine.onnx'}: ")
        return str(error)
    assert network.macs > 0
    assert network.layers[-1].feeds[1:] == (1, 1) or any(
        layer.operation.recurs for layer in network.layers
    )
    return ""
