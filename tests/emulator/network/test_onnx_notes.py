"""What is reported of an imported file: what of it is not taken, and what is another here than in
its model.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import emuchain
from emuchain.emulator.commands.network import describe_network, show_network

from .onnx_models import Graph, ending, load, onnx, op, small


def classifier(outputs: int, *end: Callable[[Graph], object]) -> Graph:
    """A convolution, a fully connected layer, and the end under test."""
    graph = ending(op("GlobalAveragePool"), op("Flatten"))
    graph.fc("fc", 4, outputs)
    for part in end:
        part(graph)
    return graph


ENDS: dict[str, tuple[list[Callable[[Graph], object]], str]] = {
    "nothing": ([], ""),
    "softmax": ([op("Softmax", axis=1)], ""),
    "relu": ([op("Relu")], ""),
    "sigmoid and softmax": ([op("Sigmoid"), op("Softmax", axis=1)], ""),
    "sigmoid": ([op("Sigmoid")], "its last operation is Sigmoid, so the model has another loss"),
    "sigmoid and a view": ([op("Sigmoid"), op("Identity")], "its last operation is Sigmoid"),
    "hard sigmoid": ([op("HardSigmoid", alpha=1 / 6)], "its last operation is HardSigmoid"),
}


@pytest.mark.parametrize("outputs", [1, 5])
@pytest.mark.parametrize("case", ENDS)
def test_ends_of_another_loss(tmp_path: Path, case: str, outputs: int) -> None:
    end, message = ENDS[case]
    note = load(tmp_path, classifier(outputs, *end)).note
    assert (message in note) if message else "operation" not in note
    assert ("it has one output" in note) == (outputs == 1)
    assert "cross-entropy" in note or not (message or outputs == 1)


def test_one_output_in_toml_is_reported_too() -> None:
    layers = [
        {"type": "conv", "channels": 4, "kernel": 3},
        {"type": "fc", "features": 1},
        {"type": "softmax"},
    ]
    assert (
        "one output"
        in emuchain.load_network({"name": "one", "input": [1, 5, 5], "layers": layers}).note
    )


def dead_end(graph: Graph) -> None:
    """A view that nothing takes."""
    last = graph.last
    graph.node("Identity", name="nowhere")
    graph.last = last


def dead_softmax(graph: Graph) -> None:
    """A view, and a softmax of it, that nothing takes."""
    last = graph.last
    graph.node("Flatten", name="flat")
    graph.node("Softmax", axis=1, name="side")
    graph.last = last


LEFT_OUT: dict[str, tuple[Callable[[Graph], object], str]] = {
    "a node": (dead_end, "left out: 1 node whose results nothing takes: 'nowhere'"),
    "a branch": (dead_softmax, "left out: 1 node whose results nothing takes: 'side'"),
    "an array": (lambda g: g.weight(3, 3), "left out: 1 array that no node takes: 'w2'"),
    "arrays": (
        lambda g: (g.weight(3), g.numbers(1)),
        "left out: 2 arrays that no node takes, such as 'w2'",
    ),
    "an attribute": (
        op("Relu", slope=0.5, name="mine"),
        "left out: 1 attribute that no operation here has: `slope` of node 'mine'",
    ),
    "attributes": (
        lambda g: g.node(
            "BatchNormalization",
            g.last,
            *(g.weight(4) for _ in range(4)),
            consumed_inputs=[0],
            axes=[1],
        ),
        "left out: 2 attributes that no operation here has, such as `",
    ),
}


@pytest.mark.parametrize("case", LEFT_OUT)
def test_what_is_left_out(tmp_path: Path, case: str) -> None:
    part, message = LEFT_OUT[case]
    assert message in load(tmp_path, small(part)).note


def test_defaults_that_are_written_out_are_no_news(tmp_path: Path) -> None:
    graph = small(
        op(
            "MaxPool",
            kernel_shape=[2, 2],
            storage_order=0,
            ceil_mode=0,
            dilations=[1, 1],
            auto_pad="NOTSET",
        ),
        lambda g: g.node(
            "BatchNormalization", g.last, *(g.weight(4) for _ in range(4)), training_mode=1
        ),
        lambda g: g.node("Reshape", g.last, g.numbers(0, 4, 7, 7), allowzero=0),
    )
    assert load(tmp_path, graph).note == ""


def test_last_states_beside_the_output(tmp_path: Path) -> None:
    graph = Graph(7, "n", 6)
    weights = [graph.weight(1, *shape) for shape in ((20, 6), (20, 5), (40,))]
    graph.nodes.append(onnx.helper.make_node("LSTM", ["x", *weights], ["y", "h", "c"]))
    graph.last = "y"
    graph.node("Squeeze", graph.last, graph.numbers(1))
    graph.node("MatMul", graph.last, graph.weight(5, 3))
    graph.outputs = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
        for name in (graph.last, "h", "c")
    ]
    message = "left out: 2 outputs that are last states of layers, such as 'h'"
    assert load(tmp_path, graph).note == message


def test_pads_beside_automatic_ones(tmp_path: Path) -> None:
    graph = small(lambda g: g.conv("two", 4, 4, 3, auto_pad="VALID"))
    with pytest.raises(
        emuchain.InputError, match="`pads` = .1, 1, 1, 1. beside `auto_pad` = 'VALID'"
    ):
        load(tmp_path, graph)


@pytest.mark.parametrize(
    ("kind", "name"), [("float16", "half precision"), ("float64", "double precision")]
)
def test_numbers_of_another_format(tmp_path: Path, kind: str, name: str) -> None:
    graph = small(
        lambda g: g.node("Conv", g.last, g.array(np.ones((4, 4, 1, 1), kind)), name="two")
    )
    assert f"1 array of weights in {name}" in load(tmp_path, graph).note


def test_commands_tell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.onnx"
    path.write_bytes(classifier(5, op("Sigmoid")).model())
    show_network(str(path), emuchain.load_network(str(path)))
    assert "note: its last operation is Sigmoid" in capsys.readouterr().out
    describe_network(str(path), str(tmp_path / "mine.toml"))
    said = capsys.readouterr()
    assert (said.out, "note: its last operation is Sigmoid" in said.err) == ("", True)


def test_one_class_is_nothing_to_train(tmp_path: Path) -> None:
    path = tmp_path / "mine.onnx"
    path.write_bytes(classifier(1).model())
    images, labels = np.zeros((8, 8, 8, 3), np.uint8), np.arange(8)
    for classes, message in (
        (1, "has one class, and network mine one output: there is nothing to learn"),
        (
            2,
            (
                "has 2 classes, but network mine has 1 output; a network needs an output for each"
                " class"
            ),
        ),
    ):
        np.savez(tmp_path / "own.npz", images=images, labels=labels % classes)
        with pytest.raises(emuchain.InputError, match=message):
            emuchain.train(str(path), data=str(tmp_path / "own.npz"), batch=2)
