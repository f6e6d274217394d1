"""LSTM and GRU of ONNX files that no layer does here: refused in one line, which says what would be
right.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emuchain.emulator.network import load_network
from emuchain.emulator.network.operations.recurrent import Gru

from .onnx_models import Graph, onnx, refused_or_not

STEPS, VALUES, UNITS = 7, 6, 5


def lstm(
    *sizes: int | str,
    inputs: dict[int, Callable[[Graph], str]] | None = None,
    kind: str = "LSTM",
    **keys: Any,
) -> Graph:
    """A layer over sequences (steps, samples, values), and a classifier of each step; `inputs`
    replace its own.
    """
    graph = Graph(*(sizes or (STEPS, "n", VALUES)))
    gates, directions = (
        {"LSTM": 4, "GRU": 3}[kind],
        2 if keys.get("direction") == "bidirectional" else 1,
    )
    takes: list[str] = ["x"]
    shapes = ((gates * UNITS, VALUES), (gates * UNITS, UNITS), (2 * gates * UNITS,))
    takes += [graph.weight(directions, *shape) for shape in shapes]
    for place, make in sorted((inputs or {}).items()):
        takes += [""] * (place + 1 - len(takes))
        takes[place] = make(graph)
    graph.node(kind, *takes, name="layer", **keys)
    graph.node("Squeeze", graph.last, graph.numbers(1))
    graph.node("MatMul", graph.last, graph.weight(UNITS, 3))
    return graph


def zeros(graph: Graph) -> str:
    """A state of zeros, made of sizes."""
    sizes = [
        graph.numbers(1),
        graph.node("Slice", graph.node("Shape", "x"), graph.numbers(1), graph.numbers(2)),
    ]
    return graph.node("ConstantOfShape", graph.node("Concat", *sizes, graph.numbers(UNITS), axis=0))


def ones(graph: Graph) -> str:
    """A state of ones."""
    value = onnx.helper.make_tensor("value", onnx.TensorProto.FLOAT, [1], [1.0])
    return graph.node("ConstantOfShape", graph.numbers(1, 2, UNITS), value=value)


def also_an_input(graph: Graph) -> str:
    """A state that is an input of the graph."""
    graph.inputs.append(
        onnx.helper.make_tensor_value_info("h0", onnx.TensorProto.FLOAT, [1, "n", UNITS])
    )
    return "h0"


BAD: dict[str, tuple[Callable[[], Graph], list[str]]] = {
    "backwards": (
        lambda: lstm(direction="reverse"),
        ["`direction` = 'reverse'", "'forward'", "turn the sequence"],
    ),
    "peepholes": (
        lambda: lstm(inputs={7: lambda g: g.weight(1, 15)}),
        ["peepholes", "only layers without"],
    ),
    "clipped": (lambda: lstm(clip=3.0), ["`clip` is not supported"]),
    "other activations": (
        lambda: lstm(activations=["Sigmoid", "Relu", "Tanh"]),
        ["`activations` = ['Sigmoid', 'Relu', 'Tanh']: should be ['Sigmoid', 'Tanh', 'Tanh']"],
    ),
    "other activations of a gru": (
        lambda: lstm(kind="GRU", activations=["HardSigmoid", "Tanh"]),
        ["should be ['Sigmoid', 'Tanh']"],
    ),
    "slopes": (lambda: lstm(activation_alpha=[0.1]), ["`activation_alpha` is not supported"]),
    "coupled gates": (lambda: lstm(input_forget=1), ["`input_forget` = 1", "should be 0"]),
    "lengths": (
        lambda: lstm(inputs={4: lambda g: g.numbers(7, 3)}),
        ["`sequence_lens`", "all time steps"],
    ),
    "lengths of fewer steps": (
        lambda: lstm(inputs={4: lambda g: g.numbers(3, 3)}),
        ["is made for 3 time steps, but takes maps of 6x7x1"],
    ),
    "a state of ones": (lambda: lstm(inputs={5: ones}), ["begins with the state", "zeros"]),
    "cells of ones": (lambda: lstm(inputs={6: ones}), ["begins with the state", "zeros"]),
    "cells of a projection": (
        lambda: lstm(inputs={6: lambda g: g.node("ConstantOfShape", g.numbers(1, 2, 2 * UNITS))}),
        ["begins with states of other sizes than its 5 units", "`proj_size`"],
    ),
    "a state that is given": (
        lambda: lstm(inputs={5: also_an_input}),
        ["2 inputs: 'x', 'h0'; there should be one"],
    ),
    "no biases": (lambda: lstm(inputs={3: lambda g: ""}), ["has no biases", "input B"]),
    "another number of units": (lambda: lstm(hidden_size=4), ["weights of 5 units"]),
    "open steps": (lambda: lstm("t", "n", VALUES), ["no fixed number of time steps", "such as 64"]),
    "maps": (
        lambda: lstm("n", 3, STEPS, 2),
        ["samples x channels x rows x columns", "rows x samples x channels"],
    ),
    "other values": (
        lambda: lstm(STEPS, "n", 4),
        ["is made for 6 channels, but takes maps of 4x7x1"],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_refused(tmp_path: Path, case: str) -> None:
    model, message = BAD[case]
    line = refused_or_not(tmp_path, model())
    for part in message:
        assert part in line
    assert "\n" not in line


GOOD: dict[str, Callable[[], Graph]] = {
    "as it is": lstm,
    "zero states": lambda: lstm(inputs={5: zeros, 6: zeros}),
    "lengths alike": lambda: lstm(inputs={4: lambda g: g.numbers(7, 7)}),
    "default activations": lambda: lstm(activations=["Sigmoid", "Tanh", "Tanh"]),
    "reset before": lambda: lstm(kind="GRU"),
    "reset after": lambda: lstm(kind="GRU", linear_before_reset=1),
}


@pytest.mark.parametrize("case", GOOD)
def test_what_is_not(tmp_path: Path, case: str) -> None:
    assert refused_or_not(tmp_path, GOOD[case]()) == ""


@pytest.mark.parametrize(("after", "reset"), [(0, "before"), (1, "after")])
def test_where_the_reset_gate_acts(tmp_path: Path, after: int, reset: str) -> None:
    path = tmp_path / "mine.onnx"
    path.write_bytes(lstm(kind="GRU", linear_before_reset=after).model())
    operation = load_network(str(path)).layers[0].operation
    assert isinstance(operation, Gru)
    assert operation.reset == reset


def test_samples_may_come_first(tmp_path: Path) -> None:
    graph = Graph("n", STEPS, VALUES)
    graph.node(
        "LSTM",
        "x",
        graph.weight(1, 20, VALUES),
        graph.weight(1, 20, UNITS),
        graph.weight(1, 40),
        layout=1,
    )
    graph.node("Squeeze", graph.last, graph.numbers(2))
    path = tmp_path / "mine.onnx"
    path.write_bytes(graph.model())
    network = load_network(str(path))
    assert network.input == (VALUES, STEPS, 1)
    assert network.layers[0].output == (UNITS, STEPS, 1)
