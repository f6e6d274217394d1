"""Leaky ReLU as a layer: two files, and it trains, is described, imported, and timed like any
other.
"""

from pathlib import Path
from typing import Any

import pytest

import emuchain
from emuchain.emulator.network import load_network, operation_types
from emuchain.emulator.network.operations.activations import LeakyRelu


def network(*activation: dict[str, Any]) -> dict[str, Any]:
    """A small network with an activation behind its convolutions."""
    conv = {"type": "conv", "channels": 20, "kernel": 3, "stride": 2}
    layers = [
        conv,
        *activation,
        {"type": "max-pool", "kernel": 2},
        conv,
        *activation,
        {"type": "fc", "features": 10},
    ]
    return {"name": "leaky", "input": [3, 32, 32], "layers": [*layers, {"type": "softmax"}]}


def weights_of(described: dict[str, Any], folder: Path, **keys: Any) -> Any:
    found = emuchain.train(
        described,
        data=folder,
        samples=60,
        test_samples=7,
        batch=20,
        schedule="sync",
        learning_rate=0.01,
        **keys,
    )
    return found.weights


def test_the_mapping_does_not_change_the_numbers(small_cifar: Path, bits: Any) -> None:
    described = network({"type": "leaky-relu", "slope": 0.1})
    expected = bits(weights_of(described, small_cifar, devices=1, micro_batch=20))
    for devices, micro_batch in ((2, 7), (5, 1)):
        assert (
            bits(weights_of(described, small_cifar, devices=devices, micro_batch=micro_batch))
            == expected
        )


def test_without_a_slope_it_is_relu(small_cifar: Path, bits: Any) -> None:
    leaky, other = (network({"type": "leaky-relu", "slope": slope}) for slope in (0.0, 0.2))
    relu = network({"type": "relu"})
    expected = bits(weights_of(relu, small_cifar, devices=2))
    assert bits(weights_of(leaky, small_cifar, devices=2)) == expected
    assert bits(weights_of(other, small_cifar, devices=2)) != expected
    times = {
        emuchain.simulate(each, devices=2, samples=60).virtual_time_ps for each in (leaky, relu)
    }
    assert len(times) == 1


def test_its_description_is_read_back() -> None:
    found = load_network(network({"type": "leaky-relu", "slope": 0.1}))
    assert 'type = "leaky-relu", slope = 0.1' in found.text
    assert found.layers[0].sfu[0].operation == LeakyRelu(slope=0.1)
    assert operation_types()["leaky-relu"] is LeakyRelu


@pytest.mark.parametrize("slope", [-0.1, 1.0, "steep", float("nan")])
def test_slopes_out_of_range_are_refused(slope: object) -> None:
    with pytest.raises(emuchain.InputError, match="slope"):
        load_network(network({"type": "leaky-relu", "slope": slope}))


@pytest.mark.parametrize("alpha", [None, 0.25])
def test_onnx(tmp_path: Path, alpha: float | None) -> None:
    onnx = pytest.importorskip("onnx")
    make, kind = onnx.helper.make_node, onnx.TensorProto.FLOAT
    values = onnx.helper.make_tensor("w", kind, (10, 3, 4, 4), bytes(4 * 480), raw=True)
    nodes = [
        make("Conv", ["x", "w"], ["a"]),
        make("LeakyRelu", ["a"], ["b"], **({} if alpha is None else {"alpha": alpha})),
        make("Flatten", ["b"], ["y"]),
    ]
    ends = [onnx.helper.make_tensor_value_info(name, kind, None) for name in ("y",)]
    start = onnx.helper.make_tensor_value_info("x", kind, ("n", 3, 4, 4))
    graph = onnx.helper.make_graph(nodes, "g", [start], ends, [values])
    onnx.save(onnx.helper.make_model(graph), tmp_path / "leaky.onnx")
    [layer] = load_network(str(tmp_path / "leaky.onnx")).layers
    assert layer.sfu[0].operation == LeakyRelu(slope=0.01 if alpha is None else alpha)


def test_pytorch_computes_the_same(small_cifar: Path) -> None:
    torch = pytest.importorskip("torch")
    step = load_network(network({"type": "leaky-relu", "slope": 0.1})).layers[0].sfu[0]
    module = step.operation.torch(torch.nn, step.input)
    assert module(torch.tensor([-1.0, 2.0])).tolist() == pytest.approx([-0.1, 2.0])
