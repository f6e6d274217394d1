"""Factors and terms of channels on chains, learnt, constant, and of squeeze-and-excitation: the
same bits and times however a network is cut, the same step as PyTorch, and their way through ONNX
and from models of PyTorch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.network import load_network

from ..networks import of_images
from .operations import KEYS, Bits, check_bits, check_step, check_weights

NETWORK = of_images(
    "scaled",
    {"type": "conv", "channels": 12, "kernel": 5, "stride": 4, "pad": 2, "name": "x"},
    *({"type": "prelu"}, {"type": "scale", "initial": 0.5, "name": "scaled"}),
    {"type": "global-average-pool"},
    *({"type": "conv", "channels": 4, "kernel": 1, "name": "fc1"}, {"type": "relu"}),
    {"type": "conv", "channels": 12, "kernel": 1, "name": "fc2"},
    {"type": "sigmoid", "name": "gate"},
    {"type": "multiply", "from": ["gate", "scaled"], "name": "gated"},
    {"type": "conv", "channels": 12, "kernel": 3, "pad": 1, "name": "y"},
    *({"type": "affine", "factor": 0.25, "shift": 0.5}, {"type": "shift"}, {"type": "silu"}),
    *({"type": "shift"}, {"type": "prelu", "shared": True}),
    {"type": "fc", "features": 12, "name": "values"},
    *({"type": "hard-sigmoid", "name": "of-values"},),
    {"type": "multiply", "from": ["gated", "of-values"]},
)


@pytest.fixture(scope="module")
def reference() -> Any:
    """Results on one board."""
    return emuchain.train(NETWORK, micro_batch=8, **KEYS)


@pytest.mark.parametrize("micro_batch", [1, 4])
@pytest.mark.parametrize("devices", [2, 3, 5, 8])
def test_no_mapping_changes_a_bit(
    reference: Any, bits: Bits, devices: int, micro_batch: int
) -> None:
    check_bits(NETWORK, KEYS, reference, bits, devices=devices, micro_batch=micro_batch)


def test_pytorch_takes_the_same_step() -> None:
    names = {"x_prelu.weight", "x_scale.weight", "y_shift.bias", "y_prelu.weight"}
    assert names <= check_step(NETWORK)
    [slope] = (
        step.operation.parameters(step.output)
        for layer in load_network(NETWORK).layers
        for step in layer.sfu
        if layer.name == "y" and step.operation.type == "prelu"
    )
    assert slope == 1


def test_it_goes_through_onnx(reference: Any, tmp_path: Path, bits: Bits) -> None:
    pytest.importorskip("onnx", reason="onnx, which the file needs, is not installed")
    path = tmp_path / "scaled.onnx"
    emuchain.export(reference, path)
    found, given = (load_network(own).layers for own in (str(path), NETWORK))
    # First factors are not in files of weights.
    for layer, own in zip(found, given, strict=True):
        kinds = [[step.operation.type for step in one.sfu] for one in (layer, own)]
        assert kinds[0] == kinds[1]
    check_weights(path, KEYS, reference, bits)


def test_rows_wait_for_the_factor_and_its_error_for_all_rows() -> None:
    [step] = (
        step
        for layer in load_network(NETWORK).layers
        for step in layer.sfu
        if step.operation.type == "multiply" and layer.name == "fc2"
    )
    [gate, scaled] = step.row_maps
    assert scaled is None and gate is not None
    assert gate.forward.tolist() == [0] * 8 and gate.backward.tolist() == [7]


@pytest.mark.parametrize("factors", [["x", "fc1"], ["x", "x", "x"], ["x", "y"]])
def test_factors_fit(factors: list[str], one_line: Any) -> None:
    layers = [
        *NETWORK["layers"][:3],
        {"type": "conv", "channels": 4, "kernel": 1, "name": "fc1"},
        {"type": "conv", "channels": 12, "kernel": 1, "stride": 2, "name": "y"},
        {"type": "multiply", "from": factors},
        *NETWORK["layers"][-2:],
    ]
    with pytest.raises(InputError, match="multiplies two maps of one shape, or one by") as error:
        load_network({**NETWORK, "layers": layers})
    assert one_line(error)


def test_models_of_pytorch_are_taken() -> None:
    """Squeeze-and-excitation, LayerScale and constants come with their weights and names."""
    torch = pytest.importorskip("torch", reason="PyTorch, of which this model is, is missing")
    pytest.importorskip("onnxscript", reason="onnxscript, which its exporter needs, is missing")
    nn = torch.nn

    class Scaled(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.gamma = nn.Conv2d(3, 8, 3), nn.Parameter(torch.rand(8, 1, 1))
            self.fc1, self.fc2 = nn.Linear(8, 4), nn.Linear(4, 8)
            self.slopes, self.slope, self.head = nn.PReLU(8), nn.PReLU(), nn.Linear(8, 10)

        def forward(self, x: Any) -> Any:
            x = self.slope(self.slopes(self.conv(x)) * self.gamma)
            gate = torch.sigmoid(self.fc2(torch.relu(self.fc1(x.mean((2, 3))))))
            y = x * gate.view(-1, 8, 1, 1).expand_as(x) - 0.5 * x + 2
            return self.head((1 - y / 4).mean((2, 3)))

    model, images = Scaled(), torch.randn(3, 3, 8, 8)
    network = emuchain.from_torch(model, torch.zeros(2, 3, 8, 8))
    kinds = [step.operation.type for layer in network.layers for step in layer.sfu]
    assert {kind: kinds.count(kind) for kind in ("prelu", "scale", "multiply", "affine")} == {
        "prelu": 2,
        "scale": 1,
        "multiply": 1,
        "affine": 2,
    }
    first = network.state.first_weights()
    assert np.array_equal(first["conv"]["scale2"], model.gamma.detach().numpy().ravel())
    from emuchain.emulator.data import Dataset

    maps, labels = np.zeros((8, 3, 8, 8), np.uint8), np.arange(8)
    own = Dataset("none", maps, labels, maps, labels, tuple(map(str, range(10))))
    keys = {"batch": 8, "progress": "none", "learning_rate": 1e-30, "weight_decay": 0}
    run = emuchain.train(network, data=own, **keys)
    theirs = model(images).detach().numpy()
    assert np.abs(emuchain.predict(run, images) - theirs).max() <= 1e-5 * np.abs(theirs).max()
    model.load_state_dict(run.state_dict(), strict=True)
