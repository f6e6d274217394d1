"""Group normalisation on chains: the same bits and times however a network is cut, the same step as
PyTorch, and its way through ONNX and from models of PyTorch.
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
from .operations import KEYS, Bits, check_bits, check_step

NETWORK = of_images(
    "groups",
    {"type": "conv", "channels": 12, "kernel": 5, "stride": 2, "pad": 2, "name": "c1"},
    *({"type": "group-norm", "groups": 3, "name": "n1"}, {"type": "relu"}),
    {"type": "conv", "channels": 12, "kernel": 3, "pad": 1, "name": "c2"},
    {"type": "group-norm", "groups": 12, "name": "n2"},
    *({"type": "add", "from": ["n2", "n1"]}, {"type": "relu"}),
    {"type": "max-pool", "kernel": 2},
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
    """One step of SGD from the same weights, of scales and shifts, too."""
    assert "c1_group_norm.weight" in check_step(NETWORK)


def test_it_goes_through_onnx(reference: Any, tmp_path: Path, bits: Bits) -> None:
    pytest.importorskip("onnx", reason="onnx, which the file needs, is not installed")
    path = tmp_path / "groups.onnx"
    emuchain.export(reference, path)
    network = load_network(str(path))
    assert network.layers == load_network(NETWORK).layers
    still = {**KEYS, "learning_rate": 1e-30, "weight_decay": 0}
    again = emuchain.train(path, init=path, **still)
    assert bits(again.weights) == bits(reference.weights)


def test_groups_divide_channels(one_line: Any) -> None:
    layers = [
        {**layer, **({"groups": 5} if "groups" in layer else {})} for layer in NETWORK["layers"]
    ]
    with pytest.raises(InputError, match="`groups` = 5 does not divide 12 channels") as error:
        load_network({**NETWORK, "layers": layers})
    assert one_line(error)


def test_models_of_pytorch_are_taken() -> None:
    """Both norms come as PyTorch's exporter writes them, with their weights and names."""
    torch = pytest.importorskip("torch", reason="PyTorch, of which this model is, is missing")
    pytest.importorskip(
        "onnxscript", reason="onnxscript, which PyTorch's exporter needs, is missing"
    )
    nn = torch.nn
    model = nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU()),
        *(nn.Conv2d(8, 8, 3, 2, 1), nn.InstanceNorm2d(8, affine=True)),
        *(nn.Flatten(), nn.Linear(128, 10)),
    )
    for parameter in model.parameters():
        nn.init.normal_(parameter, 0.2, 0.2)
    network = emuchain.from_torch(model, torch.zeros(2, 3, 8, 8))
    steps = [step.operation for layer in network.layers for step in layer.sfu]
    assert [step.groups for step in steps if step.type == "group-norm"] == [2, 8]
    images = np.random.default_rng(2).normal(0, 1, (3, 3, 8, 8)).astype(np.float32)
    random = np.random.default_rng(1)
    data = emuchain.load_data("shapes")  # only the classes are its own
    from emuchain.emulator.data import Dataset

    maps, labels = random.integers(0, 256, (8, 3, 8, 8), np.uint8), random.integers(0, 10, 8)
    own = Dataset("random", maps, labels, maps, labels, data.classes)
    run = emuchain.train(
        network, data=own, batch=8, progress="none", learning_rate=1e-30, weight_decay=0
    )
    theirs = model(torch.from_numpy(images)).detach().numpy()
    assert np.abs(emuchain.predict(run, images) - theirs).max() <= 1e-5 * np.abs(theirs).max()
    assert all(torch.equal(run.state_dict()[key], own) for key, own in model.state_dict().items())
