"""Sequences of PyTorch have their channels before or behind their steps; networks know which, where
both are as many, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.network import load_network

from ..from_torch_models import CASES, CLASSES, nn, torch

WIDTH, SAMPLES = 8, 24
STILL = {"devices": 2, "batch": 4, "learning_rate": 1e-30, "weight_decay": 0, "progress": "none"}


class Sequence(nn.Module):  # type: ignore[misc,name-defined]  # torch has no types here
    """Layers over sequences; those of LSTM turn the axes of Conv1d, and maybe back at the end."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        conv = nn.Sequential(nn.Conv1d(WIDTH, WIDTH, 3, padding=1), nn.ReLU())
        self.begin = conv if "conv" in kind else nn.Identity()
        self.lstm = nn.LSTM(WIDTH, WIDTH, batch_first=True) if "lstm" in kind else None
        self.head = nn.Linear(WIDTH, WIDTH) if "lstm" in kind else nn.Conv1d(WIDTH, WIDTH, 1)

    def forward(self, x: Any) -> Any:
        x = self.begin(x)
        if self.lstm is None:
            return self.head(x)
        x = self.head(self.lstm(x.transpose(1, 2) if "conv" in self.kind else x)[0])
        return x.transpose(1, 2) if "back" in self.kind else x


KINDS = {
    "conv": ("inputs", "results"),
    "conv lstm": ("inputs",),
    "lstm back": ("results",),
    "lstm": (),
}
Made = tuple[Any, Any, Any, Any]


@pytest.fixture(scope="module")
def made() -> Callable[[str, int], Made]:
    """What a model makes of samples, and its network."""

    def make(kind: str, steps: int) -> Made:
        torch.manual_seed(3)
        model = Sequence(kind)
        size = (WIDTH, steps) if "conv" in kind else (steps, WIDTH)
        inputs = torch.randn(SAMPLES, *size)
        with torch.no_grad():
            results = model(inputs)
        return model, inputs.numpy(), results, emuchain.from_torch(model, inputs[:1])

    return make


@pytest.mark.parametrize("steps", [WIDTH, 6])
@pytest.mark.parametrize("kind", KINDS)
def test_losses_and_results_are_those_of_pytorch(
    made: Callable[[str, int], Made], kind: str, steps: int, tmp_path: Path
) -> None:
    _, inputs, results, network = made(kind, steps)
    assert network.channels_first == KINDS[kind]
    targets = torch.randn(results.shape)
    parts = [(inputs[own], targets[own].numpy()) for own in (slice(0, 16), slice(16, SAMPLES))]
    keys = {**STILL, "loss": "mse", "out": tmp_path / "run.h5"}
    run = emuchain.train(network, emuchain.as_data(*parts), **keys)
    expected = nn.functional.mse_loss(results[16:], targets[16:]).item()
    assert run.history["test_loss"][0] == pytest.approx(expected, rel=1e-5)
    for own in (run, tmp_path / "run.h5"):
        predicted = emuchain.predict(own, inputs[:3])
        assert predicted.shape == results[:3].shape
        assert np.abs(predicted - results[:3].numpy()).max() < 1e-5
    module = run.to_torch().eval()
    assert (module(torch.from_numpy(inputs)) - results).abs().max() < 1e-5


def test_samples_that_are_read_one_by_one(
    made: Callable[[str, int], Made], tmp_path: Path, bits: Any
) -> None:
    """An HDF5 file's are, and give the bits of arrays in memory."""
    h5py = pytest.importorskip("h5py")
    _, inputs, _, network = made("conv", WIDTH)
    targets = np.arange(SAMPLES * WIDTH).reshape(SAMPLES, WIDTH) % WIDTH
    with h5py.File(tmp_path / "own.h5", "w") as file:
        file["inputs"], file["targets"] = inputs, targets
    keys = {**STILL, "learning_rate": 0.1}
    parts = (inputs, targets), (inputs.swapaxes(1, 2), targets)
    one, turned = (emuchain.train(network, own, **keys) for own in parts)
    read = emuchain.train(network, data=str(tmp_path / "own.h5"), **keys)
    assert bits(one.weights) == bits(read.weights) != bits(turned.weights)


def test_files_keep_the_order(made: Callable[[str, int], Made], tmp_path: Path) -> None:
    """That of a model which PyTorch writes, and of a network's own text."""
    pytest.importorskip("onnx", reason="onnx, which reads the file, is not installed")
    model, inputs, _, network = made("conv lstm", WIDTH)
    assert load_network(network.to_dict()).channels_first == network.channels_first
    example = torch.from_numpy(inputs[:1])
    torch.onnx.export(model, (example,), tmp_path / "own.onnx", dynamo=True, verbose=False)
    assert load_network(str(tmp_path / "own.onnx")).channels_first == ("inputs",)


def test_targets_of_other_networks_follow_from_their_sizes() -> None:
    """Of a network with steps first, targets may be (N, channels, steps), too."""
    layers = [{"type": "conv", "channels": 3, "kernel": [3, 1], "pad": [1, 0]}, {"type": "softmax"}]
    network = {"name": "line", "input": [2, 5, 1], "layers": layers}
    random = np.random.default_rng(0)
    inputs, targets = random.normal(size=(SAMPLES, 5, 2)), random.normal(size=(SAMPLES, 5, 3))
    losses = []
    for own in (targets, targets.swapaxes(1, 2)):
        run = emuchain.train(network, (inputs, own), loss="mse", **STILL)
        losses.append(run.history["test_loss"].tolist())
    assert losses[0] == losses[1]


@pytest.mark.parametrize("name", ["one channel", "rows of values"])
def test_rows_of_values_are_what_a_model_makes_of_them(name: str) -> None:
    case = CASES[name]
    model = case.model().eval()
    inputs = torch.randn(SAMPLES, math.prod(case.shape))
    targets = np.arange(SAMPLES) % CLASSES
    with torch.no_grad():
        logits = model(inputs)
    network = emuchain.from_torch(model, inputs[:2])
    parts = [(inputs[own].numpy(), targets[own]) for own in (slice(0, 16), slice(16, SAMPLES))]
    run = emuchain.train(network, emuchain.as_data(*parts), **STILL)
    expected = nn.functional.cross_entropy(logits[16:], torch.from_numpy(targets[16:])).item()
    assert run.history["test_loss"][0] == pytest.approx(expected, rel=1e-5)
    assert np.abs(emuchain.predict(run, inputs.numpy()) - logits.numpy()).max() < 1e-5
    assert (run.to_torch().eval()(inputs) - logits).abs().max() < 1e-5
