"""ONNX files cut off, damaged or of any nodes: a network, or one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .onnx_models import Graph, ending, onnx, op, refused_or_not, resnet8, small
from .test_onnx_operators import GOOD

WHOLE = resnet8().model()


@given(st.integers(0, len(WHOLE) - 1))
def test_a_truncated_file(tmp_path_factory: pytest.TempPathFactory, length: int) -> None:
    refused_or_not(tmp_path_factory.getbasetemp(), WHOLE[:length])


@given(
    st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(1, 255)), min_size=1, max_size=4)
)
def test_a_damaged_file(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]]
) -> None:
    damaged = bytearray(WHOLE)
    for place, bits in changes:
        damaged[place] ^= bits
    refused_or_not(tmp_path_factory.getbasetemp(), bytes(damaged))


OPERATORS = st.sampled_from(
    "Add AveragePool BatchNormalization Concat Constant ConstantOfShape Conv Dropout Expand Flatten"
    " GRU Gather Gemm GlobalAveragePool Identity LRN LSTM LogSoftmax MatMul MaxPool Mul ReduceMean"
    " Relu Reshape Shape Slice Softmax Squeeze Sum Transpose Unsqueeze".split()
)
ATTRIBUTES = st.dictionaries(
    st.sampled_from(
        "activations alpha axes axis auto_pad beta bias ceil_mode clip count_include_pad dilations"
        " direction end ends epsilon group hidden_size keepdims kernel_shape layout momentum pads"
        " perm ratio shape size spatial start starts strides transA transB value value_int"
        " value_ints".split()
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
        graph.constants.append(
            onnx.TensorProto(name=name, dims=shape, data_type=onnx.TensorProto.FLOAT)
        )
    graph.constants.append(
        onnx.helper.make_tensor("nan", onnx.TensorProto.FLOAT, [2], [float("nan"), float("inf")])
    )
    for operator, takes, attributes in nodes:
        names = {"here": here, "there": graph.last}
        graph.nodes.append(
            onnx.helper.make_node(
                operator,
                [names.get(name, name) for name in takes],
                [f"n{len(graph.nodes)}"],
                **attributes,
            )
        )
        graph.last = graph.nodes[-1].output[0]
    refused_or_not(tmp_path_factory.getbasetemp(), graph)


def recurrent(graph: Graph) -> None:
    """Rows of maps as a sequence, a layer, and its last step."""
    graph.node("Transpose", perm=[2, 0, 1, 3])
    graph.node("Reshape", graph.last, graph.numbers(8, -1, 32))
    weights = [graph.weight(1, *shape) for shape in ((16, 32), (16, 4), (32,))]
    graph.node("LSTM", graph.last, *weights, hidden_size=4)
    graph.node("Squeeze", graph.last, graph.numbers(1))
    graph.node("Gather", graph.last, graph.numbers(-1), axis=0)


VALID: dict[str, list[Callable[[Graph], object]]] = {
    **{case: parts for case, (parts, _) in GOOD.items()},
    "recurrent": [recurrent],
    "layer norm": [
        op("Transpose", perm=[0, 2, 3, 1]),
        lambda g: g.node("LayerNormalization", g.last, g.weight(4), g.weight(4), axis=-1),
        op("Transpose", perm=[0, 3, 1, 2]),
    ],
    "group norm": [
        lambda g: g.node("GroupNormalization", g.last, g.weight(4), g.weight(4), num_groups=2)
    ],
    "leaky": [
        op("LeakyRelu", alpha=0.1),
        op("Elu", alpha=0.5),
        op("Softplus"),
        op("ThresholdedRelu"),
    ],
    "prelu": [lambda g: g.node("PRelu", g.last, g.weight(4, 1, 1))],
    "concat": [
        lambda g: g.node("Concat", g.last, g.node("Relu"), axis=1),
        lambda g: g.conv("two", 8, 4, 1),
    ],
}
ODD = st.one_of(
    st.sampled_from([0, 1, -1, 2, 5, 255, 256, 1 << 31, (1 << 63) - 1, -(1 << 63)]),
    st.sampled_from([0.0, -1.0, 0.5, 1e-45, 3e38, float("inf"), float("nan")]),
    st.lists(
        st.sampled_from([0, 1, -1, 2, 3, 8, 9, 16, 17, 300, 1 << 31, (1 << 63) - 1]), max_size=8
    ),
    st.lists(st.sampled_from([0.0, 1.5, float("nan")]), min_size=1, max_size=2),
    st.sampled_from(["", "SAME_UPPER", "SAME_LOWER", "VALID", "tanh", "x\ny"]),
    st.none(),
)
CHANGES = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 50), ODD, st.booleans()), max_size=3
)


@settings(max_examples=500)
@given(st.sampled_from(sorted(VALID)), CHANGES, st.sampled_from([8, 1, 2, 40]), st.booleans())
def test_odd_attributes_and_numbers(
    tmp_path_factory: pytest.TempPathFactory,
    case: str,
    changes: list[tuple[int, int, Any, bool]],
    size: int,
    is_pooled: bool,
) -> None:
    """A valid graph with other values for a few of its attributes or constants, or without them."""
    graph = small(*VALID[case], size=size)
    if not is_pooled:  # then nothing asks for sizes behind the nodes under test
        graph.nodes = [node for node in graph.nodes if node.op_type != "GlobalAveragePool"]
        flatten = next(node for node in graph.nodes if node.op_type == "Flatten")
        flatten.input[0] = graph.nodes[graph.nodes.index(flatten) - 1].output[0]
    for node, place, odd, is_constant in changes:
        if is_constant:
            change_constant(graph, place, odd)
        else:
            change_attribute(graph.nodes[node % len(graph.nodes)], place, odd)
    refused_or_not(tmp_path_factory.getbasetemp(), graph)


def change_attribute(node: Any, place: int, odd: Any) -> None:
    """Give a node's attribute another value, or take it away."""
    if not node.attribute:
        return
    old = node.attribute[place % len(node.attribute)]
    node.attribute.remove(old)
    if odd is not None and odd != []:
        node.attribute.append(onnx.helper.make_attribute(old.name, odd))


def change_constant(graph: Graph, place: int, odd: Any) -> None:
    """Give a constant other numbers, or where it is a weight, other sizes."""
    place %= len(graph.constants)
    old = graph.constants[place]
    numbers = odd if isinstance(odd, list) else [odd]
    if not all(isinstance(number, (int, float)) for number in numbers):
        return
    if old.data_location == onnx.TensorProto.EXTERNAL:
        sizes = [size if isinstance(size, int) else 0 for size in numbers]
        made = onnx.TensorProto(
            name=old.name, dims=sizes, data_type=old.data_type, data_location=old.data_location
        )
    else:
        kind = (
            onnx.TensorProto.INT64
            if all(isinstance(n, int) for n in numbers)
            else onnx.TensorProto.FLOAT
        )
        made = onnx.helper.make_tensor(old.name, kind, [len(numbers)], numbers)
    graph.constants[place] = made


VIEWS = st.lists(
    st.one_of(
        st.tuples(st.just("Transpose"), st.permutations(range(4)).map(list)),
        st.tuples(st.just("Transpose"), st.permutations(range(3)).map(list)),
        st.tuples(
            st.sampled_from(
                ["Squeeze", "Unsqueeze", "Gather", "Slice", "Reshape", "Expand", "MatMul", "Add"]
            ),
            st.lists(st.integers(-3, 7), min_size=1, max_size=3),
        ),
        st.tuples(
            st.sampled_from(["Shape", "Softmax", "LSTM", "Flatten", "Concat", "Relu"]), st.just([])
        ),
    ),
    max_size=4,
)


@given(VIEWS, st.integers(0, 2), st.sampled_from(["forward", "bidirectional"]))
def test_any_views_of_a_sequence(
    tmp_path_factory: pytest.TempPathFactory,
    views: list[tuple[str, list[int]]],
    output: int,
    direction: str,
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
            graph.node(
                operator,
                graph.last,
                *(graph.weight(1, *shape) for shape in ((20, 5), (20, 5), (40,))),
            )
        elif operator == "MatMul":
            graph.node(operator, graph.last, graph.weight(5, 5))
        else:
            graph.node(operator, graph.last, *([graph.numbers(*numbers)] if numbers else []))
    refused_or_not(tmp_path_factory.getbasetemp(), graph)
