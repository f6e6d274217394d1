"""Networks from ONNX files: the same as from TOML; what cannot be taken over is refused in one line."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click.testing
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.commands.command_line import commands
from emuchain.emulator.common.errors import InputError
from emuchain.emulator.network.layers import Dropout, Network
from emuchain.emulator.network.load import load_network

onnx = pytest.importorskip("onnx", reason="onnx, which reads and builds the files of these tests, is not installed")

OPSET = 17


class Graph:
    """An ONNX model in the making. Weights have shapes and no numbers, which are said to be in another file."""

    def __init__(self, *sizes: int | str) -> None:
        self.inputs = [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, sizes or ("n", 3, 32, 32))]
        self.outputs: list[Any] = []
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.last = "x"

    def weight(self, *shape: int) -> str:
        """A constant of that shape."""
        name = f"w{len(self.constants)}"
        external = onnx.TensorProto.EXTERNAL
        data_type = onnx.TensorProto.FLOAT
        self.constants.append(onnx.TensorProto(name=name, dims=shape, data_type=data_type, data_location=external))
        return name

    def numbers(self, *numbers: float) -> str:
        """A constant whose numbers are in the file."""
        name = f"w{len(self.constants)}"
        kind = onnx.TensorProto.INT64 if all(isinstance(n, int) for n in numbers) else onnx.TensorProto.FLOAT
        self.constants.append(onnx.helper.make_tensor(name, kind, [len(numbers)], numbers))
        return name

    def node(self, operator: str, *takes: str, name: str = "", **attributes: Any) -> str:
        """A node after the last one, or one that takes values by name; the name of what it makes."""
        made = f"{operator.lower()}:{len(self.nodes)}"
        found = onnx.helper.make_node(operator, list(takes or (self.last,)), [made], name, **attributes)
        self.nodes.append(found)
        self.last = made
        return made

    def conv(
        self, name: str, inputs: int, channels: int, kernel: int, x: str = "", bias: bool = True, **keys: Any
    ) -> str:
        """A square convolution that keeps the size, unless `keys` say otherwise."""
        keys = {"pads": [kernel // 2] * 4, **keys}
        takes = [x or self.last, self.weight(channels, inputs, kernel, kernel)]
        return self.node("Conv", *takes, *([self.weight(channels)] if bias else []), name=name, **keys)

    def pool(self, kernel: int, stride: int, x: str = "", **keys: Any) -> str:
        """A square max-pool."""
        return self.node("MaxPool", x or self.last, kernel_shape=[kernel] * 2, strides=[stride] * 2, **keys)

    def norm(self, channels: int) -> str:
        """Batch normalisation."""
        return self.node("BatchNormalization", self.last, *(self.weight(channels) for _ in range(4)))

    def fc(self, name: str, inputs: int, features: int) -> str:
        """A fully connected layer, as PyTorch has it."""
        return self.node("Gemm", self.last, self.weight(features, inputs), self.weight(features), name=name, transB=1)

    def model(self) -> bytes:
        """The file."""
        outputs = self.outputs or [onnx.helper.make_tensor_value_info(self.last, onnx.TensorProto.FLOAT, None)]
        graph = onnx.helper.make_graph(self.nodes, "graph", self.inputs, outputs, self.constants)
        made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", OPSET)])
        return made.SerializeToString()


def load(folder: Path, model: Graph | bytes, name: str = "mine") -> Network:
    """The network that emuchain makes of a model."""
    path = folder / f"{name}.onnx"
    path.write_bytes(model if isinstance(model, bytes) else model.model())
    return load_network(str(path))


def vgg(channels: list[list[int]], features: list[int]) -> Graph:
    """A VGG for 32x32 images, without its dropout."""
    graph, before = Graph(1, 3, 32, 32), 3
    for stage, block in enumerate(channels, 1):
        for number, out in enumerate(block, 1):
            graph.conv(f"conv{stage}_{number}", before, out, 3)
            graph.node("Relu")
            before = out
        graph.pool(2, 2)
    graph.node("Flatten")
    for number, out in enumerate(features, 6):
        graph.fc(f"fc{number}", before, out)
        before = out
        if number < 5 + len(features):
            graph.node("Relu")
            graph.node("Dropout", graph.last, graph.numbers(0.5))
    graph.node("Softmax", axis=1)
    return graph


def alexnet() -> Graph:
    """AlexNet without groups."""
    graph = Graph("batch", 3, 224, 224)
    graph.conv("conv1", 3, 96, 11, strides=[4, 4], pads=[2] * 4)
    for name, inputs, channels, kernel, normed, pooled in (
        ("conv2", 96, 256, 5, True, True),
        ("conv3", 256, 384, 3, True, True),
        ("conv4", 384, 384, 3, False, False),
        ("conv5", 384, 256, 3, False, False),
    ):
        graph.node("Relu")
        if normed:
            graph.node("LRN", size=5, alpha=1e-4, beta=0.75, bias=2.0)
        if pooled:
            graph.pool(3, 2)
        graph.conv(name, inputs, channels, kernel)
    graph.node("Relu")
    graph.pool(3, 2)
    graph.node("Reshape", graph.last, graph.numbers(-1, 9216))
    for name, inputs, features in (("fc6", 9216, 4096), ("fc7", 4096, 4096)):
        graph.fc(name, inputs, features)
        graph.node("Relu")
        graph.node("Dropout")
    graph.node("MatMul", graph.last, graph.weight(4096, 1000), name="fc8")
    graph.node("Add", graph.weight(1000), graph.last)
    return graph


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


def inception() -> Graph:
    """Two Inception modules, whose pools stand at their end, as is usual."""
    graph = Graph("n", 3, 32, 32)
    graph.conv("conv1", 3, 32, 3)
    graph.node("Relu")
    module = graph.pool(2, 2)
    for at, inputs, one, reduce3, three, reduce5, five, pool in (
        ("conv2", 32, 16, 16, 32, 8, 16, 16),
        ("conv3", 80, 32, 32, 64, 8, 32, 32),
    ):
        if at == "conv3":
            module = graph.pool(2, 2)
        graph.conv(f"{at}_1x1", inputs, one, 1, module)
        branches = [graph.node("Relu")]
        for size, reduced, out in ((3, reduce3, three), (5, reduce5, five)):
            graph.conv(f"{at}_{size}x{size}_reduce", inputs, reduced, 1, module)
            graph.node("Relu")
            graph.conv(f"{at}_{size}x{size}", reduced, out, size)
            branches.append(graph.node("Relu"))
        graph.pool(3, 1, module, pads=[1] * 4)
        graph.conv(f"{at}_pool", inputs, pool, 1)
        branches.append(graph.node("Relu"))
        graph.node("Concat", *branches, axis=1)
    graph.node("ReduceMean", axes=[2, 3], keepdims=0)
    graph.fc("fc", 160, 10)
    graph.node("LogSoftmax", axis=-1)
    return graph


TWINS = {
    "vgg11-cifar": lambda: vgg([[64], [128], [256] * 2, [512] * 2, [512] * 2], [512, 512, 10]),
    "alexnet": alexnet,
    "resnet8-cifar": resnet8,
    "inception-cifar": inception,
}


@pytest.mark.parametrize("name", TWINS)
def test_the_same_network_as_from_toml(tmp_path: Path, name: str) -> None:
    assert load(tmp_path, TWINS[name](), name) == load_network(name)


@pytest.mark.parametrize("name", TWINS)
def test_its_toml_description_is_the_same_network(tmp_path: Path, name: str) -> None:
    network = load(tmp_path, TWINS[name](), name)
    again = tmp_path / "again.toml"
    runner = click.testing.CliRunner()
    printed = runner.invoke(commands, ["network", str(tmp_path / f"{name}.onnx"), "--toml"])
    written = runner.invoke(commands, ["network", str(tmp_path / f"{name}.onnx"), "--out", str(again)])
    assert (printed.exit_code, written.exit_code, written.output) == (0, 0, "")
    assert printed.output == again.read_text() == network.text
    assert load_network(str(again)) == network


def test_it_can_be_planned(tmp_path: Path) -> None:
    load(tmp_path, resnet8())
    flags = ["--devices", "3", "--samples", "32", "--batch", "16", "--json"]
    runner = click.testing.CliRunner()
    of_onnx = runner.invoke(commands, ["simulate", "--network", str(tmp_path / "mine.onnx"), *flags])
    of_toml = runner.invoke(commands, ["simulate", "--network", "resnet8-cifar", *flags])
    assert of_onnx.exit_code == of_toml.exit_code == 0
    own = str(tmp_path / "mine.onnx")
    assert of_onnx.output.replace(own, "resnet8-cifar") == of_toml.output


# Operators one by one


def small(*middle: Callable[[Graph], object], size: int = 8) -> Graph:
    """A convolution of 4 channels on 8x8 images, what is to be tested, the average of whole maps, and 5 classes."""
    graph = Graph("n", 3, size, size)
    graph.conv("conv", 3, 4, 3)
    for part in middle:
        part(graph)
    graph.node("GlobalAveragePool")
    graph.node("Flatten")
    graph.fc("fc", 4, 5)
    return graph


def described(middle: str) -> str:
    """The same in TOML."""
    return f"""
name = "mine"
input = [3, 8, 8]
layers = [
  {{ type = "conv", channels = 4, kernel = 3, pad = 1, name = "conv" }},
  {middle}
  {{ type = "global-average-pool" }},
  {{ type = "fc", features = 5, name = "fc" }},
  {{ type = "softmax" }},
]
"""


def op(operator: str, **attributes: Any) -> Callable[[Graph], object]:
    """A node that takes what the last one made."""
    return lambda graph: graph.node(operator, **attributes)


GOOD = {
    "nothing": ([], ""),
    "identity": ([op("Identity")], ""),
    "one term": ([op("Sum")], ""),
    "one part": ([op("Concat", axis=1)], ""),
    "batch-norm": (
        [lambda g: g.node("BatchNormalization", g.last, *(g.weight(4) for _ in range(4)), epsilon=1e-3, momentum=0.8)],
        '{ type = "batch-norm", epsilon = 1e-3, momentum = 0.2 },',
    ),
    "lrn": ([op("LRN", size=3)], '{ type = "lrn", size = 3, k = 1 },'),
    "old dropout": ([op("Dropout", ratio=0.3)], '{ type = "dropout", rate = 0.3 },'),
    "dropout": ([lambda g: g.node("Dropout", g.last, g.numbers(0.1))], '{ type = "dropout", rate = 0.1 },'),
    "dropout as it is": ([op("Dropout")], '{ type = "dropout", rate = 0.5 },'),
    "max-pool steps by one": (
        [op("MaxPool", kernel_shape=[2, 3])],
        '{ type = "max-pool", kernel = [2, 3], stride = 1 },',
    ),
    "average-pool": (
        [op("AveragePool", kernel_shape=[3, 3], strides=[2, 1], pads=[1, 0, 1, 0], count_include_pad=1)],
        '{ type = "average-pool", kernel = 3, stride = [2, 1], pad = [1, 0] },',
    ),
    "average without padding": (
        [op("AveragePool", kernel_shape=[2, 2], auto_pad="VALID")],
        '{ type = "average-pool", kernel = 2, stride = 1 },',
    ),
    "sum of three": (
        [lambda g: g.node("Sum", g.last, g.node("Relu"), g.node("Relu", g.last))],
        '{ type = "relu", name = "a" }, { type = "relu", name = "b" }, { type = "add", from = ["conv", "a", "b"] },',
    ),
    "twice the same": ([lambda g: g.node("Add", g.last, g.last)], '{ type = "add", from = ["conv", "conv"] },'),
    "a convolution of 2x1": (
        [
            lambda g: g.node(
                "Conv", g.last, g.weight(4, 4, 2, 1), name="two", kernel_shape=[2, 1], strides=[2, 3], pads=[1, 0, 1, 0]
            )
        ],
        '{ type = "conv", channels = 4, kernel = [2, 1], stride = [2, 3], pad = [1, 0], bias = false, name = "two" },',
    ),
}


@pytest.mark.parametrize("case", GOOD)
def test_operators(tmp_path: Path, case: str) -> None:
    parts, text = GOOD[case]
    path = tmp_path / "mine.toml"
    path.write_text(described(text))
    assert load(tmp_path, small(*parts)) == load_network(str(path))


def heads() -> dict[str, Graph]:
    """Each way to get from maps to classes."""

    def of(*parts: Callable[[Graph], object]) -> Graph:
        graph = Graph(7, 3, 4, 4)
        graph.conv("conv", 3, 4, 3)
        graph.node("Relu")
        for part in parts:
            part(graph)
        return graph

    def matmul(graph: Graph) -> None:
        graph.node("MatMul", graph.last, graph.weight(64, 5), name="fc")
        graph.node("Add", graph.last, graph.weight(1, 5))

    def constant(graph: Graph) -> None:
        shape = onnx.helper.make_tensor("anything", onnx.TensorProto.INT64, [2], [7, 64])
        x = graph.last
        graph.node("Reshape", x, graph.node("Identity", graph.node("Constant", value=shape)))

    def ints(graph: Graph) -> None:
        x = graph.last
        graph.node("Reshape", x, graph.node("Constant", value_ints=[0, -1]))

    def gemm(graph: Graph) -> None:
        graph.node("Gemm", graph.last, graph.weight(64, 5), graph.weight(5), name="fc")

    return {
        "flatten, gemm": of(op("Flatten"), gemm),
        "flatten, matmul": of(op("Flatten", axis=1), matmul),
        "shape from a constant": of(constant, gemm),
        "shape from integers": of(ints, gemm),
        "old reshape": of(op("Reshape", shape=[7, -1]), gemm),
        "relu of a row": of(op("Flatten"), op("Identity"), gemm),
        "softmax": of(op("Flatten"), gemm, op("Softmax", axis=-1)),
    }


@pytest.mark.parametrize("case", heads())
def test_from_maps_to_classes(tmp_path: Path, case: str) -> None:
    conv, fc = load(tmp_path, heads()[case]).layers
    assert (conv.name, fc.name, fc.is_fc, fc.bias, fc.weight_shape) == ("conv", "fc", True, True, (5, 4, 4, 4))
    assert not fc.sfu


@pytest.mark.parametrize("keepdims", [0, 1])
def test_means_of_whole_maps(tmp_path: Path, keepdims: int) -> None:
    """Classes without a fully connected layer; ReduceMean's axes are an input from version 18 on."""
    graph = Graph("n", 3, 8, 8)
    graph.conv("conv", 3, 4, 3)
    graph.node("ReduceMean", graph.last, graph.numbers(-2, -1), keepdims=keepdims)
    if keepdims:
        graph.node("Squeeze", graph.last, graph.numbers(2, 3))
    graph.node("LogSoftmax")
    [conv] = load(tmp_path, graph).layers
    assert conv.feeds == (4, 1, 1)
    assert [step.operation.type for step in conv.sfu] == ["average-pool"]


def test_the_end_need_not_be_the_last_node(tmp_path: Path) -> None:
    graph = small()
    end, side = graph.last, graph.nodes[0].output[0]
    graph.conv("late", 4, 4, 1, side)
    graph.node("GlobalAveragePool")
    graph.node("Flatten")
    graph.fc("late_fc", 4, 5)
    graph.node("Add", end, graph.last)
    total = graph.last
    graph.node("Relu", total)
    graph.outputs = [onnx.helper.make_tensor_value_info(total, onnx.TensorProto.FLOAT, None)]
    graph.nodes.pop()
    assert [layer.name for layer in load(tmp_path, graph).layers] == ["conv", "fc", "late", "late_fc"]


def test_rates_are_the_decimals_that_were_meant(tmp_path: Path) -> None:
    network = load(tmp_path, small(op("Dropout", ratio=0.1)))
    [rate] = [step.operation.rate for step in network.layers[0].sfu if isinstance(step.operation, Dropout)]
    assert rate == 0.1


def test_names_are_ours(tmp_path: Path) -> None:
    graph = Graph("n", 3, 8, 8)
    for name in ("/features/0/Conv", "/features/0/Conv", "images", "", "é ü"):
        graph.conv(name, 3, 3, 3)
    graph.node("GlobalAveragePool")
    names = [layer.name for layer in load(tmp_path, graph).layers]
    assert names == ["features_0_Conv", "features_0_Conv_2", "images_2", "conv_3", "é_ü"]


def test_old_files_list_weights_among_the_inputs(tmp_path: Path) -> None:
    graph = small()
    names = [constant.name for constant in graph.constants]
    graph.inputs += [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in names]
    assert load(tmp_path, graph) == load(tmp_path, small())


def test_a_pool_moves_up_to_the_map_that_it_takes(tmp_path: Path) -> None:
    def branches(graph: Graph) -> None:
        module = graph.last
        one = graph.conv("one", 4, 2, 1, module)
        graph.pool(3, 1, module, pads=[1] * 4)
        graph.node("Concat", one, graph.conv("two", 4, 2, 1), axis=1)

    conv, one, two, _ = load(tmp_path, small(branches)).layers
    assert [step.operation.type for step in conv.sfu] == ["max-pool"]
    assert (one.sfu, [step.operation.type for step in two.sfu]) == ((), ["concat", "average-pool"])


# What is refused


def swapped(graph: Graph, first: int, second: int) -> Graph:
    """Two nodes in each other's place."""
    graph.nodes[first], graph.nodes[second] = graph.nodes[second], graph.nodes[first]
    return graph


def with_output(graph: Graph, *names: str) -> Graph:
    """Other outputs."""
    graph.outputs = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in names]
    return graph


def with_inputs(*names: str) -> Graph:
    """A small network with more inputs."""
    graph = small()
    graph.inputs += [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 2]) for name in names]
    return graph


def cycle() -> Graph:
    """A node that takes its own result."""
    graph = small(op("Relu"))
    graph.nodes[1].input[0] = graph.nodes[1].output[0]
    return graph


def conv_with(**keys: Any) -> Graph:
    """A convolution with these attributes."""
    return small(lambda g: g.conv("odd", 4, 4, 3, **keys))


def after_flatten(*parts: Callable[[Graph], object]) -> Graph:
    """Nodes that stand behind a Flatten."""
    return small(op("Flatten"), *parts)


def ending(*parts: Callable[[Graph], object]) -> Graph:
    """A convolution of 4 channels on 8x8 images, and an end that is to be tested."""
    graph = Graph("n", 3, 8, 8)
    graph.conv("conv", 3, 4, 3)
    for part in parts:
        part(graph)
    return graph


def shared(graph: Graph) -> None:
    """A convolution with the weights of an earlier one."""
    graph.conv("again", 4, 4, 3, bias=False)
    again = graph.nodes[-1].input[1]
    graph.node("Conv", graph.last, again, pads=[1] * 4)


BAD: dict[str, tuple[Callable[[], Graph], list[str]]] = {
    "unknown operator": (lambda: small(op("Gelu", name="act")), ["node 'act' (Gelu)", "unknown", "Conv", "Relu"]),
    "operator of another domain": (lambda: small(op("Relu", domain="mine")), ["(mine.Relu)", "unknown"]),
    "groups": (lambda: conv_with(group=2), ["node 'odd' (Conv)", "`group` = 2"]),
    "dilation": (lambda: conv_with(dilations=[2, 2]), ["'odd'", "`dilations` = [2, 2]"]),
    "uneven padding": (lambda: conv_with(pads=[0, 0, 1, 1]), ["'odd'", "`pads` = [0, 0, 1, 1]"]),
    "automatic padding": (lambda: conv_with(auto_pad="SAME_UPPER"), ["'odd'", "`auto_pad` = 'SAME_UPPER'"]),
    "one stride": (lambda: conv_with(strides=[1]), ["'odd'", "`strides` = [1]"]),
    "strides of floats": (lambda: conv_with(strides=[1.0, 1.0]), ["'odd'", "`strides`", "integers"]),
    "other kernel than weights": (
        lambda: conv_with(kernel_shape=[5, 5]),
        ["'odd'", "`kernel_shape` = [5, 5]", "4x4x3x3"],
    ),
    "other channels": (lambda: small(lambda g: g.conv("odd", 5, 4, 3)), ["'odd'", "5 channels", "4x8x8"]),
    "one dimension": (
        lambda: small(lambda g: g.node("Conv", g.last, g.weight(4, 4, 3), name="odd")),
        ["'odd'", "1 dimensions"],
    ),
    "weights that are made": (
        lambda: small(lambda g: g.node("Conv", g.last, g.last, name="odd")),
        ["'odd'", "weights"],
    ),
    "weights that are shared": (lambda: small(shared), ["(Conv)", "shares its weights"]),
    "kernel too large": (
        lambda: small(lambda g: g.conv("odd", 4, 4, 11, pads=[0] * 4)),
        ["'odd'", "larger than its input"],
    ),
    "rounding up": (lambda: small(op("MaxPool", kernel_shape=[2, 2], ceil_mode=1)), ["(MaxPool)", "`ceil_mode` = 1"]),
    "pool without kernel": (lambda: small(op("MaxPool")), ["(MaxPool)", "`kernel_shape` = []"]),
    "padding that does not count": (
        lambda: small(op("AveragePool", kernel_shape=[3, 3], pads=[1] * 4)),
        ["(AveragePool)", "`count_include_pad` = 0"],
    ),
    "lrn of even size": (lambda: small(op("LRN", size=4)), ["(LRN)", "`size` = 4"]),
    "dropout of all": (lambda: small(op("Dropout", ratio=1.0)), ["(Dropout)", "`rate` = 1.0"]),
    "dropout of a made ratio": (lambda: small(lambda g: g.node("Dropout", g.last, g.last)), ["(Dropout)", "`ratio`"]),
    "batch-norm of all values": (
        lambda: small(lambda g: g.node("BatchNormalization", g.last, *(g.weight(256) for _ in range(4)))),
        ["(BatchNormalization)", "256 channels", "4x8x8"],
    ),
    "sum of shapes": (
        lambda: small(lambda g: g.node("Add", g.last, g.pool(2, 2))),
        ["(Add)", "4x8x8 and 4x4x4"],
    ),
    "sum with a constant": (lambda: small(lambda g: g.node("Add", g.last, g.weight(4, 1, 1))), ["(Add)", "constant"]),
    "sum of two constants": (lambda: small(lambda g: g.node("Add", g.weight(1), g.weight(1))), ["(Add)", "constant"]),
    "bias for others too": (
        lambda: after_flatten(
            lambda g: g.node("MatMul", g.last, g.weight(256, 5)),
            lambda g: g.node("Sum", g.last, g.node("Add", g.last, g.weight(5))),
        ),
        ["(Add)", "for it alone"],
    ),
    "joined rows": (
        lambda: small(lambda g: g.node("Concat", g.last, g.node("Relu"), axis=2)),
        ["(Concat)", "`axis` = 2"],
    ),
    "sum of maps and values": (
        lambda: small(lambda g: g.node("Add", g.last, g.node("Flatten"))),
        ["(Add)", "flattened"],
    ),
    "pool of values": (lambda: after_flatten(op("MaxPool", kernel_shape=[2, 2])), ["(MaxPool)", "flattened"]),
    "fc of maps": (lambda: small(lambda g: g.fc("odd", 4, 4)), ["'odd' (Gemm)", "Flatten"]),
    "fc of other values": (
        lambda: ending(op("Flatten"), lambda g: g.fc("odd", 255, 5)),
        ["'odd'", "255 values", "4x8x8"],
    ),
    "gemm of a transposed input": (
        lambda: after_flatten(lambda g: g.node("Gemm", g.last, g.weight(4, 4), transA=1)),
        ["(Gemm)", "`transA` = 0"],
    ),
    "flatten all": (lambda: small(op("Flatten", axis=0)), ["(Flatten)", "`axis` = 0"]),
    "reshape to maps": (lambda: small(op("Reshape", shape=[0, 4, 8, 8])), ["(Reshape)", "[0, 4, 8, 8]"]),
    "reshape over samples": (lambda: small(op("Reshape", shape=[1, -1])), ["(Reshape)", "[1, -1]"]),
    "reshape to no number": (
        lambda: ending(lambda g: g.node("Reshape", g.last, g.numbers(0.0, float("nan")))),
        ["(Reshape)", "integers"],
    ),
    "reshape to text": (
        lambda: ending(lambda g: g.node("Reshape", g.last, g.node("Constant", value_strings=["0", "-1"]))),
        ["(Reshape)", "`shape`"],
    ),
    "reshape to other values": (
        lambda: ending(op("GlobalAveragePool"), op("Reshape", shape=[-1, 8])),
        ["(Reshape)", "8 values", "4x1x1"],
    ),
    "mean of channels": (lambda: small(op("ReduceMean", axes=[1])), ["(ReduceMean)", "`axes` = [1]"]),
    "mean of all": (lambda: small(op("ReduceMean")), ["(ReduceMean)", "`axes` = []"]),
    "softmax of columns": (lambda: small(op("Softmax", axis=3)), ["(Softmax)", "`axis` = 3"]),
    "softmax in between": (lambda: small(op("Softmax", axis=1)), ["(GlobalAveragePool)", "softmax"]),
    "maps at the end": (ending, ["softmax", "8x8"]),
    "a hole": (lambda: small(lambda g: g.node("Relu", "nothing")), ["(Relu)", "'nothing'", "hole"]),
    "a result for nobody": (lambda: small(lambda g: g.node("Relu", "x")), ["(Relu)", "begins"]),
    "a side that leads nowhere": (
        lambda: small(lambda g: g.conv("side", 4, 4, 3, "conv:0"), lambda g: g.node("Relu", "conv:0")),
        ["'side'", "hole"],
    ),
    "a cycle": (cycle, ["(Relu)", "'relu:1'", "cycle"]),
    "out of order": (lambda: swapped(small(op("Relu"), op("Dropout")), 1, 2), ["(Dropout)", "out of order"]),
    "made twice": (lambda: small(op("Relu"), lambda g: g.nodes.append(g.nodes[-1])), ["(Relu)", "'relu:1'"]),
    "an input left out": (lambda: small(lambda g: g.node("Relu", "")), ["(Relu)", "lacks its input 1"]),
    "several inputs": (lambda: with_inputs("y", "z"), ["3 inputs", "'x', 'y', 'z'"]),
    "several outputs": (lambda: with_output(small(), "conv:0", "gemm:3"), ["2 outputs", "'conv:0', 'gemm:3'"]),
    "an output that nothing makes": (lambda: with_output(small(), "y"), ["'y'", "hole"]),
    "sizes that are not fixed": (lambda: Graph(1, 3, "rows", "columns"), ["'x'", "1x3x?x?", "fixed"]),
    "no images": (lambda: Graph("n", 784), ["'x'", "?x784"]),
    "empty images": (lambda: small(size=0), ["`input[1]` = 0"]),
}


def refused(folder: Path, model: Graph | bytes) -> str:
    """The one line with which a model is refused."""
    with pytest.raises(InputError) as error:
        load(folder, model)
    line = str(error.value)
    assert len(line.splitlines()) == 1
    assert line.startswith(f"{folder / 'mine.onnx'}: ")
    return line


@pytest.mark.parametrize("case", BAD)
def test_what_is_refused(tmp_path: Path, case: str) -> None:
    model, told = BAD[case]
    graph = model()
    if not graph.nodes:
        graph.node("Relu")
    line = refused(tmp_path, graph)
    for part in told:
        assert part in line


def test_the_refusal_names_what_is_known(tmp_path: Path) -> None:
    known = refused(tmp_path, small(op("Gelu"))).rpartition("known are ")[2].split(", ")
    assert {"Conv", "Gemm", "MatMul", "MaxPool", "LRN", "BatchNormalization", "Add", "Concat", "Softmax"} <= set(known)
    assert known[1:] == sorted(known[1:])
    for operator in known:
        assert "unknown operator" not in refused_or_not(tmp_path, small(op(operator)))


def refused_or_not(folder: Path, model: Graph | bytes) -> str:
    """The line with which a model is refused, or nothing; never anything else."""
    try:
        network = load(folder, model)
    except InputError as error:
        assert len(str(error).splitlines()) == 1
        assert str(error).startswith(f"{folder / 'mine.onnx'}: ")
        return str(error)
    assert network.macs > 0
    assert network.layers[-1].feeds[1:] == (1, 1)
    return ""


@pytest.mark.parametrize("content", [b"", b"some text\n", b'name = "a"\n', bytes(100)])
def test_a_file_of_something_else(tmp_path: Path, content: bytes) -> None:
    assert "not an ONNX file" in refused(tmp_path, content)


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    (tmp_path / "folder.onnx").mkdir()
    for name in ("none.onnx", "folder.onnx"):
        with pytest.raises(InputError, match="cannot be read"):
            load_network(str(tmp_path / name))
    with pytest.raises(InputError):
        load_network("a\0b.onnx")


def test_the_command_line_says_it_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.onnx"
    path.write_bytes(small(op("Gelu")).model())
    for command in (["network"], ["simulate", "--samples", "8", "--network"], ["schedule", "--network"]):
        done = subprocess.run(
            [sys.executable, "-m", "emuchain", *command, path], capture_output=True, text=True, timeout=120
        )
        assert (done.returncode, done.stdout) == (2, "")
        [line] = done.stderr.splitlines()
        assert "(Gelu): unknown operator" in line


def test_without_the_package_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert "pip install 'emuchain[onnx]'" in refused(tmp_path, b"")


def test_other_networks_do_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert load_network("resnet8-cifar").classes == 10


def test_a_name_without_its_ending(tmp_path: Path) -> None:
    load(tmp_path, small())
    with pytest.raises(InputError, match="did you mean") as error:
        load_network(str(tmp_path / "mine"))
    assert f"`{tmp_path / 'mine.onnx'}`" in str(error.value)


WHOLE = resnet8().model()


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    assert "damaged" in refused(tmp_path, WHOLE.replace(b"conv1", b"con\xff1"))


@given(st.integers(0, len(WHOLE) - 1))
def test_a_truncated_file(tmp_path_factory: pytest.TempPathFactory, length: int) -> None:
    refused_or_not(tmp_path_factory.getbasetemp(), WHOLE[:length])


@given(st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(1, 255)), min_size=1, max_size=4))
def test_a_damaged_file(tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]]) -> None:
    damaged = bytearray(WHOLE)
    for place, bits in changes:
        damaged[place] ^= bits
    refused_or_not(tmp_path_factory.getbasetemp(), bytes(damaged))


OPERATORS = st.sampled_from(
    "Add AveragePool BatchNormalization Concat Constant Conv Dropout Flatten Gemm GlobalAveragePool Identity LRN"
    " LogSoftmax MatMul MaxPool Mul ReduceMean Relu Reshape Softmax Squeeze Sum".split()
)
ATTRIBUTES = st.dictionaries(
    st.sampled_from(
        "alpha axes axis auto_pad beta bias ceil_mode count_include_pad dilations epsilon group keepdims kernel_shape"
        " momentum pads ratio shape size spatial strides transA transB value value_int value_ints".split()
    ),
    st.one_of(
        st.integers(-3, 9),
        st.floats(width=32),
        st.lists(st.integers(-2, 9), min_size=1, max_size=4),
        st.sampled_from(["SAME_UPPER", "VALID", "x\ny"]),
    ),
    max_size=3,
)
TAKES = st.lists(st.sampled_from(["", "x", "small", "wide", "nan", "here", "there"]), max_size=4)


@given(st.lists(st.tuples(OPERATORS, TAKES, ATTRIBUTES), max_size=3))
def test_any_nodes(
    tmp_path_factory: pytest.TempPathFactory, nodes: list[tuple[str, list[str], dict[str, Any]]]
) -> None:
    graph = ending()
    here = graph.last
    for name, shape in (("small", [2]), ("wide", [4, 4, 3, 3])):
        graph.constants.append(onnx.TensorProto(name=name, dims=shape, data_type=onnx.TensorProto.FLOAT))
    graph.constants.append(onnx.helper.make_tensor("nan", onnx.TensorProto.FLOAT, [2], [float("nan"), float("inf")]))
    for operator, takes, attributes in nodes:
        names = {"here": here, "there": graph.last}
        graph.nodes.append(
            onnx.helper.make_node(
                operator, [names.get(name, name) for name in takes], [f"n{len(graph.nodes)}"], **attributes
            )
        )
        graph.last = graph.nodes[-1].output[0]
    refused_or_not(tmp_path_factory.getbasetemp(), graph)


# From PyTorch


@pytest.mark.filterwarnings("ignore")
def test_what_pytorch_exports(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch, which exports the file of this test, is not installed")
    nn = torch.nn

    class Block(nn.Module):  # type: ignore[misc, name-defined]  # torch is optional
        def __init__(self, before: int, channels: int) -> None:
            super().__init__()
            stride = channels // before
            self.first, self.first_norm = (
                nn.Conv2d(before, channels, 3, stride, 1, bias=False),
                nn.BatchNorm2d(channels),
            )
            self.second, self.second_norm = nn.Conv2d(channels, channels, 3, 1, 1, bias=False), nn.BatchNorm2d(channels)
            shortcut = nn.Conv2d(before, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            self.shortcut = nn.Identity() if stride == 1 else nn.Sequential(*shortcut)

        def forward(self, x: Any) -> Any:
            short = self.shortcut(x)
            x = torch.relu(self.first_norm(self.first(x)))
            return torch.relu(self.second_norm(self.second(x)) + short)

    model = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()),
        *(Block(16, 16), Block(16, 32), Block(32, 64)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)),
    )
    path = tmp_path / "resnet8-cifar.onnx"
    training = {"training": torch.onnx.TrainingMode.TRAINING, "do_constant_folding": False}
    torch.onnx.export(model, (torch.zeros(2, 3, 32, 32),), str(path), dynamo=False, **training)
    ours = load_network("resnet8-cifar")
    names = [layer.name for layer in ours.layers]
    exported = load_network(str(path))
    renamed = [dataclasses.replace(layer, name=name) for layer, name in zip(exported.layers, names, strict=True)]
    assert dataclasses.replace(exported, layers=tuple(renamed)) == ours
