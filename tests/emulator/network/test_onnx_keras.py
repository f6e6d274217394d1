"""Graphs as tf2onnx writes them of Keras models: channels last, and sizes that follow from shapes
in the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from emuchain.emulator.common import InputError
from emuchain.emulator.network import load_network
from emuchain.emulator.network.load import onnx_weights

from .onnx_models import Graph, load, onnx

Sizes = Callable[[Graph, str], str]
"""Adds the nodes that make sizes of a value's shape; returns their name."""


def headed(graph: Graph, sizes: Sizes, kernel: np.ndarray) -> Graph:
    """Maps (channels, rows, columns) with their channels last, in a row by sizes of the graph, and
    a Dense.
    """
    maps = graph.last
    turned = graph.node("Transpose", perm=[0, 2, 3, 1])
    graph.node("Reshape", turned, sizes(graph, maps))
    graph.node("MatMul", graph.last, graph.array(kernel), name="dense")
    return graph


def convolved() -> Graph:
    """A convolution of 4 channels on maps of 6x5 of an open number of samples, channels last."""
    graph = Graph("n", 6, 5, 3)
    graph.node("Transpose", perm=[0, 3, 1, 2])
    graph.conv("conv", 3, 4, 3)
    return graph


def samples_of(graph: Graph, maps: str) -> str:
    """The first size of a shape whose axes are put in Keras' order."""
    shape = graph.node("Gather", graph.node("Shape", maps), graph.numbers(0, 2, 3, 1))
    narrow = graph.node("Cast", shape, to=6)
    return graph.node("Slice", narrow, graph.numbers(0), graph.numbers(1), graph.numbers(0))


def flatten(graph: Graph, maps: str) -> str:
    """Flatten of Keras 3."""
    joined = graph.node("Concat", samples_of(graph, maps), graph.numbers(120), axis=0)
    return graph.node("Cast", joined, to=7)


def flatten_by_product(graph: Graph, maps: str) -> str:
    """The number of values as the product of sizes."""
    shape = graph.node("Gather", graph.node("Shape", maps), graph.numbers(0, 2, 3, 1))
    rest = graph.node("Slice", shape, graph.numbers(1), graph.numbers(4), graph.numbers(0))
    return graph.node(
        "Concat", samples_of(graph, maps), graph.node("ReduceProd", rest, keepdims=1), axis=0
    )


def flatten_from_behind(graph: Graph, maps: str) -> str:
    """Sizes that are cut from the end on."""
    last = graph.node(
        "Slice", graph.node("Shape", maps), *(graph.numbers(n) for n in (-1, -5, 0, -1))
    )
    first = graph.node("Gather", last, graph.numbers(3))
    return graph.node("Concat", first, graph.numbers(-1), axis=0)


@pytest.mark.parametrize("sizes", [flatten, flatten_by_product, flatten_from_behind])
def test_flatten(tmp_path: Path, sizes: Sizes) -> None:
    """The weights of a Dense behind it are those of channels, rows and columns here."""
    kernel = np.arange(120 * 7, dtype=np.float32).reshape(120, 7)
    graph = headed(convolved(), sizes, kernel)
    conv, dense = load(tmp_path, graph).layers
    assert (conv.input, conv.feeds, dense.weight_shape) == ((3, 6, 5), (4, 6, 5), (7, 4, 6, 5))
    graph.constants[0] = onnx.numpy_helper.from_array(
        np.ones((4, 3, 3, 3), np.float32), graph.constants[0].name
    )
    graph.constants[1] = onnx.numpy_helper.from_array(
        np.ones(4, np.float32), graph.constants[1].name
    )
    (tmp_path / "mine.onnx").write_bytes(graph.model())
    weight = onnx_weights(str(tmp_path / "mine.onnx"))["dense"]["weight"]
    assert np.array_equal(weight, kernel.reshape(6, 5, 4, 7).transpose(3, 2, 0, 1))


def rounded(graph: Graph, maps: str) -> str:
    """Sizes by what is not followed."""
    return graph.node(
        "Concat",
        graph.node("Mod", samples_of(graph, maps), graph.numbers(7)),
        graph.numbers(-1),
        axis=0,
    )


def picked(graph: Graph, maps: str) -> str:
    """Sizes that are picked by another size."""
    return graph.node("Gather", graph.node("Shape", maps), samples_of(graph, maps))


@pytest.mark.parametrize("sizes", [rounded, picked])
def test_sizes_that_are_not_followed(
    tmp_path: Path, one_line: Callable[..., str], sizes: Sizes
) -> None:
    graph = headed(convolved(), sizes, np.ones((120, 7), np.float32))
    with pytest.raises(InputError) as error:
        load(tmp_path, graph)
    assert (
        "computes sizes from others, one of which is open, in a way that is not followed; export"
        in one_line(error)
    )


def conv1d(*sizes: int | str) -> Graph:
    """A convolution over one axis, as PyTorch has it."""
    graph = Graph(*sizes)
    graph.node("Conv", graph.last, graph.weight(8, 6, 3), name="line", pads=[1, 1])
    return graph


def keras_conv1d() -> Graph:
    """A convolution over one axis, as tf2onnx writes it: over maps of one row."""
    graph = Graph("n", 40, 6)
    graph.node("Unsqueeze", graph.last, graph.numbers(-3))
    graph.node("Transpose", perm=[0, 3, 1, 2])
    graph.node("Conv", graph.last, graph.weight(8, 6, 1, 3), name="line")
    return graph


@pytest.mark.parametrize("samples", [2, "n"])
def test_convolutions_over_one_axis_are_those_of_maps_of_one_column(
    tmp_path: Path, samples: int | str
) -> None:
    graph = conv1d(samples, 6, 20)
    graph.node("AveragePool", kernel_shape=[2], strides=[2], name="pool")
    network = load(tmp_path, graph)
    [line] = network.layers
    assert (network.input, line.output, line.feeds) == ((6, 20, 1), (8, 20, 1), (8, 10, 1))
    assert line.window[:3] == ((3, 1), (1, 1), (1, 0))


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (conv1d("n", 6, "length"), "the input 'x' has no fixed number of time steps"),
        (keras_conv1d(), "node 'line' (Conv): is a convolution over one axis (Conv1d), as Keras"),
    ],
)
def test_what_is_refused_of_convolutions_over_one_axis(
    tmp_path: Path, one_line: Callable[..., str], graph: Graph, message: str
) -> None:
    with pytest.raises(InputError) as error:
        load(tmp_path, graph)
    assert message in one_line(error)


UNNAMED: dict[str, Callable[[Graph], object]] = {
    "pool": lambda g: g.node("MaxPool", kernel_shape=[2, 2]),
    "norm": lambda g: g.node("BatchNormalization", g.last, *(g.weight(6) for _ in range(4))),
    "flatten": lambda g: g.node("Flatten"),
    "layer norm": lambda g: g.node("LayerNormalization", g.last, g.weight(20)),
    "mean": lambda g: g.node("ReduceMean", axes=[2]),
}


@pytest.mark.parametrize("case", UNNAMED)
def test_axes_that_nothing_names_are_not_called_by_number(
    tmp_path: Path, one_line: Callable[..., str], case: str
) -> None:
    graph = Graph("n", 6, 20)
    UNNAMED[case](graph)
    with pytest.raises(InputError) as error:
        load(tmp_path, graph)
    line = one_line(error)
    assert "0 x 1" not in line
    assert "mine.onnx: " in line


def test_axes_that_were_moved(tmp_path: Path, one_line: Callable[..., str]) -> None:
    graph = Graph("n", 3, 8, 8)
    graph.node("Transpose", perm=[0, 2, 1, 3])
    graph.conv("conv", 8, 4, 3)
    with pytest.raises(InputError) as error:
        load(tmp_path, graph)
    assert (
        "takes maps with their axes moved, samples x rows x channels x columns, so that rows are"
        in one_line(error)
    )


def test_a_file_of_tf2onnx_is_a_network(tmp_path: Path) -> None:
    """With a fixed number of samples, all sizes are numbers."""
    graph = Graph(1, 6, 5, 3)
    graph.node("Transpose", perm=[0, 3, 1, 2])
    graph.conv("conv", 3, 4, 3)
    headed(graph, rounded, np.ones((120, 7), np.float32))
    path = tmp_path / "mine.onnx"
    path.write_bytes(graph.model())
    assert load_network(str(path)).classes == 7


def keras_with_torch(*, shortcut: bool = False) -> Graph:
    """Conv2D and BatchNormalization as Keras 3 writes them with PyTorch behind it: casts, channels
    last between all operators, a bias as a sum, and a norm of which the averages are numbers.
    """
    graph = Graph("n", 6, 6, 4)
    x = graph.node("Cast", graph.node("Cast", graph.last, to=1), to=1)
    first = graph.node("Transpose", x, perm=[0, 3, 1, 2])
    kernel = graph.array(np.ones((4, 4, 3, 3), np.float32))
    made = graph.node("Conv", first, kernel, name="conv", pads=[1, 1, 1, 1])
    last = graph.node("Transpose", made, perm=[0, 2, 3, 1])
    arrays = [graph.array(row) for row in ARRAYS]
    for operator, array in zip(("Add", "Sub", "Mul", "Add"), arrays, strict=True):
        last = graph.node(operator, last, array)
    last = graph.node("Add", last, x) if shortcut else last
    graph.node("Relu", graph.node("Transpose", last, perm=[0, 3, 1, 2]))
    graph.node("MatMul", graph.node("Flatten"), graph.array(np.ones((144, 5), np.float32)))
    return graph


ARRAYS = np.arange(16, dtype=np.float32).reshape(4, 4) + 1
"""A bias, averages, factors and terms."""


def test_channels_last_between_all_operators(tmp_path: Path) -> None:
    """The bias is the convolution's; averages are taken off by a term that is their negative."""
    (tmp_path / "mine.onnx").write_bytes(keras_with_torch().model())
    conv, _ = load(tmp_path, keras_with_torch()).layers
    assert (conv.input, conv.output) == ((4, 6, 6), (4, 6, 6))
    weights = onnx_weights(str(tmp_path / "mine.onnx"))["conv"]
    bias, averages, factors, terms = ARRAYS
    assert [*weights] == ["weight", "bias", "shift", "scale2", "shift3"]
    for name, array in zip([*weights][1:], (bias, -averages, factors, terms), strict=True):
        assert np.array_equal(weights[name], array)


def test_channels_last_into_a_shortcut(tmp_path: Path) -> None:
    network = load(tmp_path, keras_with_torch(shortcut=True))
    assert network.input == (4, 6, 6)


@pytest.mark.parametrize("sizes", [(28, 20, 1), (1, 28, 20)])
def test_one_channel_in_a_row_of_values(tmp_path: Path, sizes: tuple[int, int, int]) -> None:
    """A channel that is the last axis is the first one here, as of data; no value moves."""
    graph = Graph("n", *sizes)
    graph.node("Cast", graph.last, to=1)
    graph.node("Reshape", graph.last, graph.numbers(-1, 560))
    graph.node("MatMul", graph.last, graph.weight(560, 7), name="dense")
    assert load(tmp_path, graph).input == (1, 28, 20)
