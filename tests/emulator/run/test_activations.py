"""Activations and averages in whole chains: mappings change no number, PyTorch takes the same
step.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.data import load_data
from emuchain.emulator.network import load_network

# Each activation behind a convolution of its own; where a map is needed twice, one works on a map
# that others read.
LAYERS: list[dict[str, Any]] = [
    {"type": "conv", "channels": 20, "kernel": 5, "stride": 2, "pad": 2},
    {"type": "batch-norm"},
    {"type": "relu6"},
    {"type": "average-pool", "kernel": 3, "stride": 2, "pad": 1, "count_include_pad": False},
    {"type": "conv", "channels": 18, "kernel": 3, "pad": 1},
    {"type": "silu"},
    {"type": "elu", "scale": 0.7},
    {"type": "conv", "channels": 17, "kernel": 1, "bias": False},
    {"type": "mish"},
    {"type": "hard-swish", "name": "swish"},
    {"type": "sigmoid", "name": "gate"},
    {"type": "add", "from": ["swish", "gate"]},
    {"type": "clip", "low": -0.5, "high": 4.0},
    {"type": "average-pool", "kernel": 3, "stride": 2, "pad": 1},
    {"type": "conv", "channels": 19, "kernel": 3},
    {"type": "hard-sigmoid"},
    {"type": "dropout", "rate": 0.25},
    {"type": "fc", "features": 10},
    {"type": "softmax"},
]
NETWORK = {"name": "activations", "input": [3, 32, 32], "layers": LAYERS}
PLAIN = {
    **NETWORK,
    "layers": [layer for layer in LAYERS if layer["type"] not in ("batch-norm", "dropout", "add")],
}
KEYS: dict[str, Any] = {
    "samples": 36,
    "test_samples": 7,
    "batch": 12,
    "schedule": "sync",
    "learning_rate": 0.01,
}


@pytest.fixture(scope="module")
def reference(small_cifar: Path, bits: Any) -> Any:
    return bits(
        emuchain.train(NETWORK, data=small_cifar, devices=1, micro_batch=12, **KEYS).weights
    )


@pytest.mark.parametrize(("devices", "micro_batch"), [(2, 5), (5, 1), (9, 12)])
def test_mappings_do_not_change_the_numbers(
    small_cifar: Path, bits: Any, reference: Any, devices: int, micro_batch: int
) -> None:
    found = emuchain.train(
        NETWORK, data=small_cifar, devices=devices, micro_batch=micro_batch, **KEYS
    )
    assert bits(found.weights) == reference


@pytest.mark.parametrize("schedule", ["sync", "fpdeep"])
def test_simulation_and_training_take_the_same_time(small_cifar: Path, schedule: str) -> None:
    keys = {**KEYS, "schedule": schedule, "devices": 4}
    trained = emuchain.train(NETWORK, data=small_cifar, **keys)
    assert trained.virtual_time_ps > 0
    del keys["test_samples"], keys["learning_rate"]
    assert emuchain.simulate(NETWORK, **keys).virtual_time_ps == trained.virtual_time_ps


def test_pytorch_takes_the_same_step(small_cifar: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch, the peer of this test, is not installed")
    keys = {**KEYS, "samples": 12, "momentum": 0.0, "weight_decay": 0.0, "devices": 3}
    start = emuchain.train(PLAIN, data=small_cifar, **{**keys, "learning_rate": 1e-30}).weights
    found = emuchain.train(PLAIN, data=small_cifar, **keys).weights
    modules, learnt = [], {}
    for layer in load_network(PLAIN).layers:
        made = list(layer.operation.torch(torch.nn, layer.input))
        with torch.no_grad():
            made[-1].weight.copy_(
                torch.tensor(start[layer.name]["weight"]).reshape(made[-1].weight.shape)
            )
            if made[-1].bias is not None:
                made[-1].bias.zero_()
        learnt[layer.name] = made[-1].weight
        modules += [*made, *(step.operation.torch(torch.nn, step.input) for step in layer.sfu)]
    data = load_data(str(small_cifar)).first(12)
    images = torch.from_numpy(data.normalisation().apply(data.train_images))
    loss = torch.nn.functional.cross_entropy(
        torch.nn.Sequential(*modules)(images), torch.tensor(data.train_labels)
    )
    loss.backward()
    for name, weight in learnt.items():
        moved = -0.01 * weight.grad.numpy().reshape(found[name]["weight"].shape)
        here = found[name]["weight"] - start[name]["weight"]
        # a weight near 1 has steps of 6e-8, which its small moves are rounded to
        assert np.abs(here - moved).max() <= 1e-3 * np.abs(moved).max() + 1e-7, name
        assert np.abs(moved).max() > 0
