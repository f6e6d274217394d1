"""ONNX files cut off, damaged or of any nodes: a network, or one line."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .onnx_models import Graph, ending, onnx, refused_or_not, resnet8

WHOLE = resnet8().model()


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
    "Add AveragePool BatchNormalization Concat Constant ConstantOfShape Conv Dropout Expand Flatten GRU Gather Gemm"
    " GlobalAveragePool Identity LRN LSTM LogSoftmax MatMul MaxPool Mul ReduceMean Relu Reshape Shape Slice Softmax"
    " Squeeze Sum Transpose Unsqueeze".split()
)
ATTRIBUTES = st.dictionaries(
    st.sampled_from(
        "activations alpha axes axis auto_pad beta bias ceil_mode clip count_include_pad dilations direction end ends"
        " epsilon group hidden_size keepdims kernel_shape layout momentum pads perm ratio shape size spatial start"
        " starts strides transA transB value value_int value_ints".split()
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


VIEWS = st.lists(
    st.one_of(
        st.tuples(st.just("Transpose"), st.permutations(range(4)).map(list)),
        st.tuples(st.just("Transpose"), st.permutations(range(3)).map(list)),
        st.tuples(
            st.sampled_from(["Squeeze", "Unsqueeze", "Gather", "Slice", "Reshape", "Expand", "MatMul", "Add"]),
            st.lists(st.integers(-3, 7), min_size=1, max_size=3),
        ),
        st.tuples(st.sampled_from(["Shape", "Softmax", "LSTM", "Flatten", "Concat", "Relu"]), st.just([])),
    ),
    max_size=4,
)


@given(VIEWS, st.integers(0, 2), st.sampled_from(["forward", "bidirectional"]))
def test_any_views_of_a_sequence(
    tmp_path_factory: pytest.TempPathFactory, views: list[tuple[str, list[int]]], output: int, direction: str
) -> None:
    graph, directions = Graph(7, "n", 6), 2 if direction == "bidirectional" else 1
    weights = [graph.weight(directions, *shape) for shape in ((20, 6), (20, 5), (40,))]
    names = [f"layer{n}" for n in range(3)]
    graph.nodes.append(onnx.helper.make_node("LSTM", ["x", *weights], names, direction=direction))
    graph.last = names[output]
    for operator, numbers in views:
        if operator == "Transpose":
            graph.node(operator, perm=numbers)
        elif operator == "LSTM":
            graph.node(operator, graph.last, *(graph.weight(1, *shape) for shape in ((20, 5), (20, 5), (40,))))
        elif operator == "MatMul":
            graph.node(operator, graph.last, graph.weight(5, 5))
        else:
            graph.node(operator, graph.last, *([graph.numbers(*numbers)] if numbers else []))
    refused_or_not(tmp_path_factory.getbasetemp(), graph)
