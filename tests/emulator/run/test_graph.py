"""Networks with shortcuts and branches: mappings change no number, PyTorch finds the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from emuchain.emulator.data import load_data
from emuchain.emulator.network import Layer, Network, load_network
from emuchain.emulator.network.operations.activations import Relu
from emuchain.emulator.network.operations.joins import Add, Concat
from emuchain.emulator.network.operations.normalisation import BatchNorm
from emuchain.emulator.network.operations.pool import AveragePool, MaxPool
from emuchain.emulator.run import EpochRecord, Weights, simulate

# Joins and shared maps in every order: of images, of bare convolutions, in place or not, within an
# SFU and far beyond.
NETWORK = """
name = "tangle"
input = [3, 32, 32]
layers = [
  { type = "conv", channels = 20, kernel = 5, stride = 2, pad = 2, name = "a" },
  { type = "relu", name = "a_relu" },
  { type = "max-pool", kernel = 3, stride = 2, pad = 1, name = "a_pool" },
  { type = "batch-norm", name = "a_norm" },
  { type = "conv", channels = 18, kernel = [3, 1], pad = [1, 0], bias = false, name = "b" },
  { type = "relu", name = "b_relu" },
  { type = "concat", from = ["b", "a_norm", "b_relu"], name = "b_wide" },
  { type = "conv", channels = 56, kernel = 3, pad = 1, name = "c", from = "b_relu" },
  { type = "add", from = ["c", "b_wide", "c"], name = "c_sum" },
  { type = "relu", from = "b_wide", name = "b_late" },
  { type = "dropout", rate = 0.25, from = "c_sum", name = "c_drop" },
  { type = "conv", channels = 20, kernel = 1, name = "d", from = "c_sum" },
  { type = "add", from = ["d", "a_pool"], name = "d_sum" },
  { type = "conv", channels = 5, kernel = 8, stride = 4, pad = 2, name = "e", from = "images" },
  { type = "lrn", size = 3 },
  { type = "relu", name = "e_out" },
  { type = "concat", from = ["c_drop", "d_sum", "e_out", "b_late", "c_sum"] },
  { type = "global-average-pool" },
  { type = "fc", features = 10 },
  { type = "softmax" },
]
"""
SAMPLES, BATCH = 36, 12


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("graph") / "tangle.toml"
    path.write_text(NETWORK)
    return str(path)


TrainKeys = Callable[..., tuple[Weights, EpochRecord]]


@pytest.fixture(scope="module")
def train_keys(plan_of: Any, trained: Any, small_cifar: Path) -> TrainKeys:
    """Trains an epoch with these keys in this process; gives weights and result."""

    def train(network: str, **keys: object) -> tuple[Weights, EpochRecord]:
        settings = {
            "network": network,
            "batch": BATCH,
            "micro_batch": 5,
            "schedule": "sync",
            "seed": 2,
        }
        settings |= {"data": str(small_cifar), "samples": SAMPLES, "test_samples": 7}
        weights, [result] = trained(plan_of(**{**settings, **keys}))
        return weights, result

    return train


@pytest.fixture(scope="module")
def reference(network: str, train_keys: TrainKeys) -> tuple[Weights, EpochRecord]:
    return train_keys(network, devices=1)


@pytest.mark.parametrize("devices", [2, 3, 5, 8, 21])
@pytest.mark.parametrize("micro_batch", [1, 12])
def test_mappings_do_not_change_the_numbers(
    network: str,
    train_keys: TrainKeys,
    bits: Any,
    reference: tuple[Weights, EpochRecord],
    devices: int,
    micro_batch: int,
) -> None:
    weights, result = train_keys(network, devices=devices, micro_batch=micro_batch)
    assert bits(weights) == bits(reference[0])
    assert (result.train, result.test) == (reference[1].train, reference[1].test)


@pytest.mark.parametrize("name", ["resnet8-cifar", "inception-cifar"])
def test_networks_of_the_zoo(train_keys: TrainKeys, bits: Any, name: str) -> None:
    weights, _ = train_keys(name, devices=1)
    for devices in (3, 8):
        assert bits(train_keys(name, devices=devices)[0]) == bits(weights)


@pytest.mark.parametrize("schedule", ["sync", "fpdeep"])
@pytest.mark.parametrize("devices", [1, 4, 9])
def test_simulation_and_training_take_the_same_time(
    network: str, train_keys: TrainKeys, plan_of: Any, schedule: str, devices: int
) -> None:
    _, result = train_keys(network, devices=devices, schedule=schedule)
    simulation = simulate(
        plan_of(network=network, batch=BATCH, schedule=schedule, devices=devices), SAMPLES
    )
    assert simulation.usage.virtual_time_ps == result.virtual_time_ps
    assert simulation.usage.links == result.usage.links


def test_what_passes_by_costs_its_bytes(network: str, plan_of: Any) -> None:
    """By hand: where `c` is cut, the rest of `b_relu` goes on, and `b_wide`, `a_pool` and the
    images pass by.
    """
    plan = plan_of(network=network, devices=9, batch=BATCH, schedule="sync")
    simulation = simulate(plan, SAMPLES)
    cuts = [
        link
        for link, (left, right) in enumerate(
            zip(plan.mapping.devices, plan.mapping.devices[1:], strict=False)
        )
        if left[-1].layer.name == right[0].layer.name == "c"
    ]
    assert cuts
    for link in cuts:
        begin = plan.mapping.devices[link + 1][0].begin
        forward = next(
            f for f in simulation.usage.links if (f.sender, f.receiver) == (link, link + 1)
        )
        values = 3 * 32 * 32 + (20 + 56 + 18 - begin) * 8 * 8
        assert forward.path_bytes == {1: 4 * SAMPLES * values, 2: 4 * SAMPLES * 56 * 8 * 8}


class _Torch:
    """The same network by autograd, with moving averages that are given, and no dropout."""

    def __init__(self, torch: Any, network: Network, weights: Weights) -> None:
        self.torch, self.network = torch, network
        self.parameters = {
            layer: {
                name: torch.tensor(array, requires_grad=name not in ("mean", "variance"))
                for name, array in arrays.items()
            }
            for layer, arrays in weights.items()
        }

    def outputs(self, images: Any) -> Any:
        """The outputs for images (n, channels, rows, columns)."""
        held = {0: images}
        for layer in self.network.layers:
            self._layer(layer, held)
        return held[self.network.layers[-1].hands_on[0].number].flatten(1)

    def _layer(self, layer: Layer, held: dict[int, Any]) -> None:
        functional, given = self.torch.nn.functional, self.parameters[layer.name]
        x = held[layer.reads.number]
        held[layer.makes.number] = functional.conv2d(
            x, given["weight"], given.get("bias"), layer.window.stride, layer.window.pad
        )
        for step in layer.sfu:
            of, xs = step.operation, [held[tensor.number] for tensor in step.reads]
            if isinstance(of, Relu):
                y = functional.relu(xs[0])
            elif isinstance(of, BatchNorm):
                mean, variance, scale, shift = (
                    given[name] for name in ("mean", "variance", "scale", "shift")
                )
                y = functional.batch_norm(xs[0], mean, variance, scale, shift, eps=of.epsilon)
            elif isinstance(of, Add):
                y = sum(xs)
            elif isinstance(of, Concat):
                y = self.torch.cat(xs, 1)
            elif isinstance(of, MaxPool | AveragePool):
                kind = functional.max_pool2d if isinstance(of, MaxPool) else functional.avg_pool2d
                y = kind(xs[0], of.kernel, of.step, of.pad)
            else:
                raise AssertionError(of)
            held[step.makes.number] = y


@pytest.mark.parametrize("name", ["resnet8-cifar", "inception-cifar"])
def test_gradients_are_those_of_autograd(
    train_keys: TrainKeys, small_cifar: Path, name: str
) -> None:
    """One step of SGD, and a second one with moving averages that are no longer 0 and 1."""
    torch = pytest.importorskip("torch")
    flags = {"devices": 3, "batch": SAMPLES, "momentum": 0.0, "weight_decay": 0.0}
    # At a rate next to zero, an epoch leaves the weights as they are, and updates mean and
    # variance.
    before, _ = train_keys(name, **flags, learning_rate=1e-30)
    first, result = train_keys(name, **flags, learning_rate=0.01)
    data = load_data(str(small_cifar)).first(SAMPLES)
    start = {
        layer: {
            n: {"mean": np.zeros_like(a), "variance": np.ones_like(a)}.get(n, a)
            for n, a in arrays.items()
        }
        for layer, arrays in before.items()
    }
    peer = _Torch(torch, load_network(name), start)
    loss = torch.nn.functional.cross_entropy(
        peer.outputs(torch.tensor(data.normalisation().apply(data.train_images))),
        torch.tensor(data.train_labels),
    )
    loss.backward()
    assert result.train.mean_loss == pytest.approx(loss.item(), rel=1e-5)
    for layer, given in peer.parameters.items():
        for parameter, value in given.items():
            if value.grad is not None:
                expected = value.detach().numpy() - 0.01 * value.grad.numpy()
                moved = np.abs(expected - start[layer][parameter]).max()
                assert moved > 0
                assert np.abs(first[layer][parameter] - expected).max() < 1e-3 * moved + 1e-7, (
                    f"{layer}/{parameter}"
                )


def test_moving_averages(train_keys: TrainKeys, small_cifar: Path) -> None:
    """Of the first convolution of resnet8-cifar, which sees the same images under any weights: its
    own.
    """
    flags = {
        "devices": 2,
        "batch": SAMPLES,
        "momentum": 0.0,
        "weight_decay": 0.0,
        "learning_rate": 1e-30,
    }
    weights, _ = train_keys("resnet8-cifar", **flags)
    torch = pytest.importorskip("torch")
    data = load_data(str(small_cifar)).first(SAMPLES)
    images = torch.tensor(data.normalisation().apply(data.train_images))
    y = torch.nn.functional.conv2d(images, torch.tensor(weights["conv1"]["weight"]), padding=1)
    mean, variance = y.mean((0, 2, 3)).numpy(), y.var((0, 2, 3)).numpy()
    assert weights["conv1"]["mean"] == pytest.approx(0.1 * mean, rel=1e-4, abs=1e-6)
    assert weights["conv1"]["variance"] == pytest.approx(0.9 + 0.1 * variance, rel=1e-4)


@pytest.mark.parametrize(
    ("mpiexec", "name", "ranks", "devices"),
    [("mpich", "resnet8-cifar", 3, 3), ("openmpi", "inception-cifar", 2, 7)],
    indirect=["mpiexec"],
)
def test_ranks(
    mpiexec: Any,
    train_keys: TrainKeys,
    bits: Any,
    small_cifar: Path,
    tmp_path: Path,
    name: str,
    ranks: int,
    devices: int,
) -> None:
    out = tmp_path / "run.h5"
    flags = {
        "network": name,
        "data": str(small_cifar),
        "samples": SAMPLES,
        "test-samples": 7,
        "batch": BATCH,
    }
    flags |= {"micro-batch": 5, "schedule": "sync", "seed": 2, "devices": devices, "out": str(out)}
    words = [word for key, value in flags.items() for word in (f"--{key}", str(value))]
    mpiexec(ranks, ["-m", "emuchain", "train", *words], timeout=300)
    expected, _ = train_keys(name, devices=1)
    with h5py.File(out) as file:
        found = {
            layer: {n: array[()] for n, array in arrays.items()}
            for layer, arrays in file["weights"].items()
        }
    assert bits(found) == bits(
        {layer: dict(sorted(arrays.items())) for layer, arrays in expected.items()}
    )
