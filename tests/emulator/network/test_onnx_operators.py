"""ONNX operators one by one: what becomes of each, and of names, constants and the order of
nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from emuchain.emulator.commands.frame.flags import subject_of
from emuchain.emulator.common import InputError
from emuchain.emulator.network import load_network
from emuchain.emulator.network.operations.normalisation import Dropout
from emuchain.emulator.network.operations.pool import MaxPool
from emuchain.kernels.layers.pool import max_error, max_forward

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
        [
            lambda g: g.node(
                "BatchNormalization",
                g.last,
                *(g.weight(4) for _ in range(4)),
                epsilon=1e-3,
                momentum=0.8,
            )
        ],
        '{ type = "batch-norm", epsilon = 1e-3, momentum = 0.2 },',
    ),
    "lrn": ([op("LRN", size=3)], '{ type = "lrn", size = 3, k = 1 },'),
    "old dropout": ([op("Dropout", ratio=0.3)], '{ type = "dropout", rate = 0.3 },'),
    "dropout": (
        [lambda g: g.node("Dropout", g.last, g.numbers(0.1))],
        '{ type = "dropout", rate = 0.1 },',
    ),
    "dropout as it is": ([op("Dropout")], '{ type = "dropout", rate = 0.5 },'),
    "max-pool steps by one": (
        [op("MaxPool", kernel_shape=[2, 3])],
        '{ type = "max-pool", kernel = [2, 3], stride = 1 },',
    ),
    "average-pool": (
        [
            op(
                "AveragePool",
                kernel_shape=[3, 3],
                strides=[2, 1],
                pads=[1, 0, 1, 0],
                count_include_pad=1,
            )
        ],
        '{ type = "average-pool", kernel = 3, stride = [2, 1], pad = [1, 0] },',
    ),
    "average-pool without its padding": (
        [op("AveragePool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])],
        '{ type = "average-pool", kernel = 3, stride = 2, pad = 1, count_include_pad = false },',
    ),
    "clip by attributes": ([op("Clip", min=0.0, max=6.0)], '{ type = "relu6" },'),
    "clip by inputs": (
        [lambda g: g.node("Clip", g.last, g.numbers(0.0), g.numbers(6.0))],
        '{ type = "relu6" },',
    ),
    "clip above ReLU": (
        [op("Relu"), lambda g: g.node("Clip", g.last, "", g.numbers(6.0))],
        '{ type = "relu6" },',
    ),
    "maximum with zeros of its sizes": (
        [lambda g: g.node("Max", g.last, g.array(np.zeros((4, 8, 8), np.float32)))],
        '{ type = "relu" },',
    ),
    "maximum with zeros of open sizes": (
        [lambda g: g.node("Max", g.last, g.node("Expand", g.numbers(0.0), g.node("Shape")))],
        '{ type = "relu" },',
    ),
    "clip below alone": ([lambda g: g.node("Clip", g.last, g.numbers(0.0))], '{ type = "relu" },'),
    "clip to other limits": (
        [op("Clip", min=-0.5, max=2.0)],
        '{ type = "clip", low = -0.5, high = 2.0 },',
    ),
    "elu": ([op("Elu", alpha=0.5)], '{ type = "elu", scale = 0.5 },'),
    "mish": ([op("Mish")], '{ type = "mish" },'),
    "mish spelled out": (
        [lambda g: g.node("Mul", g.last, g.node("Tanh", g.node("Softplus")))],
        '{ type = "mish" },',
    ),
    "tanh": ([op("Tanh")], '{ type = "tanh" },'),
    "sigmoid": ([op("Sigmoid")], '{ type = "sigmoid" },'),
    "silu": ([lambda g: g.node("Mul", g.last, g.node("Sigmoid"))], '{ type = "silu" },'),
    "silu the other way": (
        [lambda g: g.node("Mul", g.node("Sigmoid"), g.nodes[-1].input[0])],
        '{ type = "silu" },',
    ),
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
        (
            '{ type = "relu", name = "a" }, { type = "relu", name = "b" }, { type = "add", from ='
            ' ["conv", "a", "b"] },'
        ),
    ),
    "twice the same": (
        [lambda g: g.node("Add", g.last, g.last)],
        '{ type = "add", from = ["conv", "conv"] },',
    ),
    "maximum with zero": ([lambda g: g.node("Max", g.last, g.numbers(0.0))], '{ type = "relu" },'),
    "zero and maximum": ([lambda g: g.node("Max", g.numbers(0.0), g.last)], '{ type = "relu" },'),
    "minimum of relu and six": (
        [op("Relu"), lambda g: g.node("Min", g.last, g.numbers(6.0))],
        '{ type = "relu6" },',
    ),
    "rounding up": (
        [op("MaxPool", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)],
        '{ type = "max-pool", kernel = 3, stride = 2, ceil = true },',
    ),
    "rounding up that divides": (
        [op("MaxPool", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)],
        '{ type = "max-pool", kernel = 2 },',
    ),
    "rounding up to a window in the padding": (  # as PyTorch leaves it out: 8 + 2 - 2 over 3 is 2, and one more is none
        [op("MaxPool", kernel_shape=[2, 2], strides=[3, 3], pads=[1] * 4, ceil_mode=1)],
        '{ type = "max-pool", kernel = 2, stride = 3, pad = 1 },',
    ),
    "padding at the end that no window reaches": (
        [
            op(
                "AveragePool",
                kernel_shape=[2, 2],
                strides=[2, 2],
                pads=[0, 0, 1, 1],
                count_include_pad=1,
            )
        ],
        '{ type = "average-pool", kernel = 2 },',
    ),
    "padding at the beginning alone": (  # 8 + 1 - 3 over 2 is 3, as is 8 + 2 - 3
        [lambda g: g.conv("two", 4, 4, 3, strides=[2, 2], pads=[1, 1, 0, 0])],
        '{ type = "conv", channels = 4, kernel = 3, pad = 1, stride = 2, name = "two" },',
    ),
    "dilation of one place": (
        [lambda g: g.conv("two", 4, 4, 1, dilations=[3, 2])],
        '{ type = "conv", channels = 4, kernel = 1, name = "two" },',
    ),
    "same size": (
        [lambda g: g.conv("two", 4, 4, 5, pads=[0] * 4, auto_pad="SAME_UPPER")],
        '{ type = "conv", channels = 4, kernel = 5, pad = 2, name = "two" },',
    ),
    "same size in steps": (  # 7 rows of 8 reach from -1 to 7: one more before, none behind
        [lambda g: g.conv("two", 4, 4, 3, pads=[0] * 4, strides=[2, 2], auto_pad="SAME_LOWER")],
        '{ type = "conv", channels = 4, kernel = 3, pad = 1, stride = 2, name = "two" },',
    ),
    "zeros before a convolution": (
        [
            lambda g: g.node("Pad", g.last, g.numbers(0, 0, 1, 2, 0, 0, 1, 2)),
            lambda g: g.conv("two", 4, 4, 5, pads=[1] * 4),
        ],
        '{ type = "conv", channels = 4, kernel = 5, pad = [2, 3], name = "two" },',
    ),
    "zeros before an average": (
        [
            lambda g: g.node("Pad", g.last, g.numbers(0, 0, 1, 1, 0, 0, 1, 1)),
            op("AveragePool", kernel_shape=[2, 2], strides=[2, 2]),
        ],
        '{ type = "average-pool", kernel = 2, stride = 2, pad = 1 },',
    ),
    "zeros before a maximum of what is above": (
        [
            op("Relu"),
            lambda g: g.node("Pad", g.last, g.numbers(0, 0, 1, 1, 0, 0, 1, 1)),
            op("MaxPool", kernel_shape=[3, 3], strides=[2, 2]),
        ],
        '{ type = "relu" }, { type = "max-pool", kernel = 3, stride = 2, pad = 1 },',
    ),
    "no padding": ([lambda g: g.node("Pad", g.last, g.numbers(*[0] * 8))], ""),
    "maximum of the map": ([op("GlobalMaxPool")], '{ type = "max-pool", kernel = 8 },'),
    "maximum over rows and columns": (
        [op("ReduceMax", axes=[2, -1])],
        '{ type = "max-pool", kernel = 8 },',
    ),
    "mean of rows": ([op("ReduceMean", axes=[2])], '{ type = "average-pool", kernel = [8, 1] },'),
    "axes moved and back": (
        [op("Transpose", perm=[0, 2, 3, 1]), op("Relu"), op("Transpose", perm=[0, 3, 1, 2])],
        '{ type = "relu" },',
    ),
    "an axis of one in between": (
        [
            lambda g: g.node("Reshape", g.last, g.numbers(-1, 4, 1, 64)),
            op("Relu"),
            lambda g: g.node("Reshape", g.last, g.numbers(0, 4, 8, 8)),
        ],
        '{ type = "relu" },',
    ),
    "groups": (
        [lambda g: g.node("Conv", g.last, g.weight(4, 2, 3, 3), name="two", group=2, pads=[1] * 4)],
        (
            '{ type = "conv", channels = 4, kernel = 3, pad = 1, groups = 2, bias = false, name ='
            ' "two" },'
        ),
    ),
    "a convolution of 2x1": (
        [
            lambda g: g.node(
                "Conv",
                g.last,
                g.weight(4, 4, 2, 1),
                name="two",
                kernel_shape=[2, 1],
                strides=[2, 3],
                pads=[1, 0, 1, 0],
            )
        ],
        (
            '{ type = "conv", channels = 4, kernel = [2, 1], stride = [2, 3], pad = [1, 0], bias ='
            ' false, name = "two" },'
        ),
    ),
}


@pytest.mark.parametrize("case", GOOD)
def test_operators(tmp_path: Path, case: str) -> None:
    parts, text = GOOD[case]
    path = tmp_path / "mine.toml"
    path.write_text(described(text))
    assert load(tmp_path, small(*parts)) == load_network(str(path))


WIDE = {
    "whole maps": (op("GlobalMaxPool"), (30, 41), (30, 41), (1, 1), (0, 0)),
    "rows and columns": (op("ReduceMax", axes=[2, 3]), (16, 16), (16, 16), (1, 1), (0, 0)),
    "columns": (op("ReduceMax", axes=[3]), (3, 700), (1, 700), (1, 1), (0, 0)),
    "overlapping": (
        op("MaxPool", kernel_shape=[17, 20], strides=[3, 4], pads=[8, 5, 8, 5]), (30, 41), (17, 20), (3, 4), (8, 5)
    ),
    "tall": (
        op("MaxPool", kernel_shape=[300, 2], strides=[7, 1], pads=[9, 0, 9, 0]), (320, 3), (300, 2), (7, 1), (9, 0)
    ),
}  # fmt: skip
"""Windows of more places than one pool takes: the node, the size of maps, and the window."""


@pytest.mark.parametrize("case", WIDE)
def test_wide_windows_are_pools_in_a_row(tmp_path: Path, case: str) -> None:
    """They find the same maxima at the same places: of equal ones the first, row by row."""
    part, size, kernel, stride, pad = WIDE[case]
    graph = Graph("n", 3, *size)
    graph.conv("conv", 3, 2, 1)
    part(graph)
    graph.node("Flatten")
    down, across = (
        (side + 2 * p - k) // s + 1 for side, k, s, p in zip(size, kernel, stride, pad, strict=True)
    )
    graph.fc("fc", 2 * down * across, 5)
    conv, _ = load(tmp_path, graph).layers
    x = np.random.default_rng(3).integers(0, 50, (2, *size, 2)).astype(np.float32)
    y, states = x, []
    for step in conv.sfu:
        pool = step.operation
        assert isinstance(pool, MaxPool)
        keys = {"kernel": pool.kernel, "stride": pool.step, "pad": pool.pad}
        made = np.empty((2, *step.output[1:], 2), np.float32)
        places = np.empty(made.shape, np.uint8)
        max_forward(y, made, places, **keys)
        states.append((places, y, keys))
        y = made
    dx = np.arange(1, y.size + 1, dtype=np.float32).reshape(y.shape)
    dy = dx
    for places, taken, keys in reversed(states):
        dx = np.empty_like(taken)
        max_error(dy, places, dx, **keys)
        dy = dx
    padded = np.pad(x, [(0, 0), (pad[0],) * 2, (pad[1],) * 2, (0, 0)], constant_values=-1)
    windows = np.lib.stride_tricks.sliding_window_view(padded, kernel, (1, 2))[
        :, :: stride[0], :: stride[1]
    ]
    windows = windows.reshape(*windows.shape[:4], -1)
    assert np.array_equal(y, windows.max(-1))
    expected, errors = (
        np.zeros_like(padded),
        np.arange(1, y.size + 1, dtype=np.float32).reshape(y.shape),
    )
    for at in np.ndindex(y.shape):
        down, across = divmod(int(windows[at].argmax()), kernel[1])
        expected[at[0], at[1] * stride[0] + down, at[2] * stride[1] + across, at[3]] += errors[at]
    assert np.array_equal(dx, expected[:, pad[0] : pad[0] + size[0], pad[1] : pad[1] + size[1]])


def test_a_window_that_no_pools_in_a_row_make(tmp_path: Path, one_line: Callable[..., str]) -> None:
    graph = Graph("n", 3, 700, 3)
    graph.conv("conv", 3, 2, 1)
    graph.node("MaxPool", kernel_shape=[600, 1], pads=[300, 0, 300, 0], name="wide")
    graph.node("Flatten")
    with pytest.raises(
        InputError,
        match="mine.onnx: node 'wide' .MaxPool.: `pad` = 300 must be less than the kernel",
    ):
        load(tmp_path, graph)


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

    def channels_last(graph: Graph) -> None:
        x = graph.node("Transpose", perm=[0, 2, 3, 1])
        graph.node("Reshape", x, graph.numbers(7, -1))

    def in_parts(graph: Graph) -> None:
        x = graph.node("Reshape", graph.last, graph.numbers(0, 4, -1))
        graph.node("Reshape", x, graph.numbers(-1, 64))

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
        "channels last": of(channels_last, gemm),
        "pixels first, then all": of(in_parts, gemm),
        "old reshape": of(op("Reshape", shape=[7, -1]), gemm),
        "relu of a row": of(op("Flatten"), op("Identity"), gemm),
        "softmax": of(op("Flatten"), gemm, op("Softmax", axis=-1)),
    }


@pytest.mark.parametrize("case", heads())
def test_from_maps_to_classes(tmp_path: Path, case: str) -> None:
    conv, fc = load(tmp_path, heads()[case]).layers
    assert (conv.name, fc.name, fc.convolves, fc.bias, fc.weight_shape) == (
        "conv",
        "fc",
        False,
        True,
        (5, 4, 4, 4),
    )
    assert not fc.sfu


@pytest.mark.parametrize("keepdims", [0, 1])
def test_means_of_whole_maps(tmp_path: Path, keepdims: int) -> None:
    """Classes without a fully connected layer; ReduceMean's axes are an input from version 18
    on.
    """
    graph = Graph("n", 3, 8, 8)
    graph.conv("conv", 3, 4, 3)
    graph.node("ReduceMean", graph.last, graph.numbers(-2, -1), keepdims=keepdims)
    if keepdims:
        graph.node("Squeeze", graph.last, graph.numbers(2, 3))
    graph.node("LogSoftmax")
    [conv] = load(tmp_path, graph).layers
    assert conv.feeds == (4, 1, 1)
    assert [step.operation.type for step in conv.sfu] == ["average-pool"]


def squeezed_twice(graph: Graph) -> None:
    """Rows and columns of maps of 1x1 leave one after the other."""
    graph.node("GlobalAveragePool")
    for axis in (-1, 2):
        graph.node("Squeeze", graph.last, graph.numbers(axis))


def pixels(graph: Graph) -> None:
    """The mean of all pixels in a row."""
    x = graph.node("Reshape", graph.last, graph.numbers(-1, 4, 64))
    graph.node("ReduceMean", x, axes=[2], keepdims=0)


def one_after_the_other(graph: Graph) -> None:
    """The mean of columns, and then of rows."""
    for _ in range(2):
        graph.node("ReduceMean", graph.last, axes=[-1], keepdims=0)


def squeezed(graph: Graph) -> None:
    """All axes of one leave."""
    graph.node("GlobalAveragePool")
    graph.node("Squeeze")


ENDS = {
    "squeeze twice": (squeezed_twice, ["average-pool"]),
    "squeeze all": (squeezed, ["average-pool"]),
    "mean of pixels": (pixels, ["average-pool"]),
    "mean twice": (one_after_the_other, ["average-pool", "average-pool"]),
}


@pytest.mark.parametrize("case", ENDS)
def test_ways_to_one_value_of_each_channel(tmp_path: Path, case: str) -> None:
    end, pools = ENDS[case]
    graph = Graph("n", 3, 8, 8)
    graph.conv("conv", 3, 4, 3)
    end(graph)
    graph.fc("fc", 4, 5)
    conv, fc = load(tmp_path, graph).layers
    assert [step.operation.type for step in conv.sfu] == pools
    assert (conv.feeds, fc.weight_shape) == ((4, 1, 1), (5, 4, 1, 1))


def test_images_with_channels_last_go_in_with_channels_first(tmp_path: Path) -> None:
    graph = Graph("n", 6, 8, 3)
    graph.node("Transpose", perm=[0, 3, 1, 2])
    graph.conv("conv", 3, 4, 3)
    graph.node("GlobalAveragePool")
    assert load(tmp_path, graph).input == (3, 6, 8)


def test_rows_of_values_are_channels_of_one_pixel(tmp_path: Path) -> None:
    graph = Graph("n", 784)
    graph.fc("one", 784, 5)
    network = load(tmp_path, graph)
    assert (network.input, network.layers[0].weight_shape) == ((784, 1, 1), (5, 784, 1, 1))


def test_the_end_of_the_name_may_be_in_capitals(tmp_path: Path) -> None:
    path = tmp_path / "MINE.ONNX"
    path.write_bytes(small().model())
    assert load_network(str(path)).layers == load(tmp_path, small()).layers
    assert subject_of(str(path)).network == str(path)


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
    assert [layer.name for layer in load(tmp_path, graph).layers] == [
        "conv",
        "fc",
        "late",
        "late_fc",
    ]


def test_rates_are_the_decimals_that_were_meant(tmp_path: Path) -> None:
    network = load(tmp_path, small(op("Dropout", ratio=0.1)))
    [rate] = [
        step.operation.rate for step in network.layers[0].sfu if isinstance(step.operation, Dropout)
    ]
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
    graph.inputs += [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in names
    ]
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
