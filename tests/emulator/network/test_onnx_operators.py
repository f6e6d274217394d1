"""ONNX operators one by one: what becomes of each, and of names, constants and the order of nodes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from emuchain.emulator.network import load_network
from emuchain.emulator.network.operations.dropout import Dropout

from .onnx_models import Graph, load, onnx, op, small


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
    "average-pool without its padding": (
        [op("AveragePool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])],
        '{ type = "average-pool", kernel = 3, stride = 2, pad = 1, count_include_pad = false },',
    ),
    "clip by attributes": ([op("Clip", min=0.0, max=6.0)], '{ type = "relu6" },'),
    "clip by inputs": ([lambda g: g.node("Clip", g.last, g.numbers(0.0), g.numbers(6.0))], '{ type = "relu6" },'),
    "clip below alone": ([lambda g: g.node("Clip", g.last, g.numbers(0.0))], '{ type = "relu" },'),
    "sigmoid": ([op("Sigmoid")], '{ type = "sigmoid" },'),
    "silu": ([lambda g: g.node("Mul", g.last, g.node("Sigmoid"))], '{ type = "silu" },'),
    "silu the other way": ([lambda g: g.node("Mul", g.node("Sigmoid"), g.nodes[-1].input[0])], '{ type = "silu" },'),
    "swish": ([op("Swish")], '{ type = "silu" },'),
    "hard sigmoid": ([op("HardSigmoid", alpha=1 / 6)], '{ type = "hard-sigmoid" },'),
    "hard swish": ([op("HardSwish")], '{ type = "hard-swish" },'),
    "hard swish of two": (
        [lambda g: g.node("Mul", g.last, g.node("HardSigmoid", alpha=1 / 6))],
        '{ type = "hard-swish" },',
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
    "groups": (
        [lambda g: g.node("Conv", g.last, g.weight(4, 2, 3, 3), name="two", group=2, pads=[1] * 4)],
        '{ type = "conv", channels = 4, kernel = 3, pad = 1, groups = 2, bias = false, name = "two" },',
    ),
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
    assert (conv.name, fc.name, fc.convolves, fc.bias, fc.weight_shape) == ("conv", "fc", False, True, (5, 4, 4, 4))
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
