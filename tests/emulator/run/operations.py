"""What tests of operations have in common: a small network on boards, and beside PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.network import Network, load_network

KEYS: dict[str, Any] = {
    **{"samples": 24, "test_samples": 10, "batch": 8, "schedule": "sync", "progress": "none"},
    **{"learning_rate": 0.01},
}
Bits = Callable[[Any], dict[str, bytes]]


def check_bits(
    network: Any, keys: Mapping[str, Any], reference: emuchain.Results, bits: Bits, **cut: int
) -> None:
    """Check that a cut over `devices`, in a `micro_batch`, changes no bit of the results on one
    board, and that a simulation takes its time.
    """
    run = emuchain.train(network, **cut, **keys)
    assert bits(run.weights) == bits(reference.weights)
    own = {key: keys[key] for key in ("samples", "batch", "schedule", "precision") if key in keys}
    simulation = emuchain.simulate(network, **cut, **own)
    assert simulation.virtual_time_ps == run.virtual_time_ps


def check_file(network: Any, run: emuchain.Results, path: Path) -> Network:
    """Check that a file of a run's network is the same network; return it."""
    pytest.importorskip("onnx", reason="onnx, which the file needs, is not installed")
    emuchain.export(run, path)
    read = load_network(str(path))
    assert read.layers == load_network(network).layers
    return read


def check_weights(path: Path, keys: Mapping[str, Any], run: emuchain.Results, bits: Bits) -> None:
    """Check that a file of a run has its weights, by training that moves none."""
    still = {**keys, "learning_rate": 1e-30, "weight_decay": 0}
    assert bits(emuchain.train(path, init=path, **still).weights) == bits(run.weights)


def check_step(network: Any) -> set[str]:
    """Check that one step of SGD at a rate of 0.01 is PyTorch's, of each parameter, from the same
    weights; return the parameters' names.
    """
    torch = pytest.importorskip("torch", reason="PyTorch, the peer of this test, is not installed")
    keys = {**KEYS, "samples": 8, "momentum": 0.0, "weight_decay": 0.0, "devices": 3}
    still = emuchain.train(network, **{**keys, "learning_rate": 1e-30})
    moved = emuchain.train(network, **keys)
    module, stepped = still.to_torch().double().train(), moved.to_torch().double()
    data = emuchain.load_data("shapes").first(8)
    images = data.normalisation().apply(np.asarray(data.train_images))
    logits = module(torch.from_numpy(images).double())
    torch.nn.functional.cross_entropy(logits, torch.tensor(data.train_labels)).backward()
    after = dict(stepped.named_parameters())
    for key, parameter in module.named_parameters():
        step, expected = after[key] - parameter, -0.01 * parameter.grad
        # a weight near 1 has steps of 6e-8, which its small moves are rounded to
        assert (step - expected).abs().max() <= 1e-4 * expected.abs().max() + 1e-7, key
        assert expected.abs().max() > 0
    return {*after}
