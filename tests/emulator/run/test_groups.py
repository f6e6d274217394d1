"""Convolutions in groups in whole chains: mappings change no number, times agree, PyTorch takes the
same step.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from emuchain.emulator.data import load_data
from emuchain.emulator.network import load_network
from emuchain.emulator.run import EpochRecord, Weights, simulate

# Groups of one, two and five channels, on images, on maps that are needed again, with strides, and
# as wide as a map.
NETWORK = """
name = "groups"
input = [3, 32, 32]
layers = [
  { type = "conv", channels = 21, kernel = 5, stride = 2, pad = 2, groups = 3, name = "stem" },
  { type = "relu6" },
  { type = "conv", channels = 20, kernel = 1, name = "wide" },
  { type = "relu6", name = "first" },
  { type = "conv", channels = 20, kernel = 7, pad = 3, groups = 20, bias = false, name = "depth" },
  { type = "relu6" },
  { type = "conv", channels = 20, kernel = 1, name = "narrow" },
  { type = "add", from = ["narrow", "first"], name = "sum" },
  { type = "conv", channels = 30, kernel = 3, stride = 2, groups = 10, name = "tens" },
  { type = "silu" },
  { type = "conv", channels = 30, kernel = [3, 1], pad = [1, 0], groups = 3, name = "threes" },
  { type = "concat", from = ["threes", "tens"] },
  { type = "conv", channels = 60, kernel = 7, groups = 60, name = "whole" },
  { type = "fc", features = 10 },
  { type = "softmax" },
]
"""
SAMPLES, BATCH = 36, 12


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("groups") / "groups.toml"
    path.write_text(NETWORK)
    return str(path)


TrainKeys = Callable[..., tuple[Weights, EpochRecord]]


@pytest.fixture(scope="module")
def settings_of(network: str, small_cifar: Path) -> Callable[..., dict[str, Any]]:
    """Gives the keys of an epoch, with some changed."""

    def make(**keys: Any) -> dict[str, Any]:
        settings = {
            "network": network,
            "batch": BATCH,
            "micro_batch": 5,
            "schedule": "sync",
            "seed": 2,
        }
        return {**settings, "data": str(small_cifar), "samples": SAMPLES, "test_samples": 7, **keys}

    return make


@pytest.fixture(scope="module")
def train_keys(plan_of: Any, trained: Any, settings_of: Any) -> TrainKeys:
    """Trains an epoch with these keys in this process; gives weights and result."""

    def train(**keys: object) -> tuple[Weights, EpochRecord]:
        weights, [result] = trained(plan_of(**settings_of(**keys)))
        return weights, result

    return train


@pytest.fixture(scope="module")
def reference(train_keys: TrainKeys) -> tuple[Weights, EpochRecord]:
    return train_keys(devices=1)


@pytest.mark.parametrize("devices", [2, 3, 5, 8, 21])
@pytest.mark.parametrize("micro_batch", [1, 12])
def test_mappings_do_not_change_the_numbers(
    train_keys: TrainKeys,
    bits: Any,
    reference: tuple[Weights, EpochRecord],
    devices: int,
    micro_batch: int,
) -> None:
    weights, result = train_keys(devices=devices, micro_batch=micro_batch)
    assert bits(weights) == bits(reference[0])
    assert (result.train, result.test) == (reference[1].train, reference[1].test)


def test_cuts_fall_into_groups(plan_of: Any, settings_of: Any) -> None:
    """The tests above would miss what they are for if all cuts were between groups."""
    plan = plan_of(**settings_of(devices=21))
    parts = [
        part
        for slices in plan.mapping.devices
        for part in slices
        if part.layer.operation.groups > 1
    ]
    each = [part.layer.channels // part.layer.operation.groups for part in parts]
    assert any(part.begin % count for part, count in zip(parts, each, strict=True))
    assert any(part.layer.reads_again and not part.is_first for part in parts)


@pytest.mark.parametrize("schedule", ["sync", "fpdeep", "1f1b-so"])
@pytest.mark.parametrize("devices", [1, 4, 9])
def test_simulation_and_training_take_the_same_time(
    train_keys: TrainKeys, plan_of: Any, settings_of: Any, schedule: str, devices: int
) -> None:
    keys: dict[str, Any] = {"schedule": schedule, "devices": devices}
    if schedule == "1f1b-so":
        keys["micro_batch"] = 6
    _, result = train_keys(**keys)
    simulation = simulate(plan_of(**settings_of(**keys)), SAMPLES)
    assert simulation.usage.virtual_time_ps == result.virtual_time_ps
    assert simulation.usage.links == result.usage.links


def test_weights_do_not_depend_on_where_they_are_stored(
    plan_of: Any,
    settings_of: Any,
    many_blocks: Any,
    with_blocks: Any,
    trained: Any,
    bits: Any,
    reference: Any,
) -> None:
    plan = plan_of(**settings_of(devices=5, memory="fpdeep", balancing="none"))
    blocks = many_blocks(plan)
    assert {block.layer.name for block in blocks} >= {"depth", "tens"}
    assert bits(trained(with_blocks(plan, blocks)).weights) == bits(reference[0])


def test_replicas_train_as_one_does(train_keys: TrainKeys) -> None:
    """Their sums are in another order, by replicas; so they agree to rounding."""
    start, _ = train_keys(learning_rate=1e-30, samples=BATCH)
    alone, _ = train_keys(devices=2, samples=BATCH)
    found, _ = train_keys(devices=6, replicas=2, micro_batch=6, samples=BATCH)
    for layer, arrays in alone.items():
        for name, array in arrays.items():
            moved = np.abs(array - start[layer][name]).max()
            assert moved > 0
            assert np.abs(found[layer][name] - array).max() < 1e-3 * moved + 1e-7, f"{layer}/{name}"


def test_pytorch_takes_the_same_step(
    network: str, train_keys: TrainKeys, small_cifar: Path
) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch, the peer of this test, is not installed")
    keys = {"samples": BATCH, "momentum": 0.0, "weight_decay": 0.0, "devices": 7}
    start, _ = train_keys(**keys, learning_rate=1e-30)
    found, result = train_keys(**keys, learning_rate=0.01)
    data = load_data(str(small_cifar)).first(BATCH)
    held = {0: torch.from_numpy(data.normalisation().apply(data.train_images))}
    given: dict[tuple[str, str], Any] = {}
    layers = load_network(network).layers
    for layer in layers:
        for name, array in start[layer.name].items():
            given[layer.name, name] = torch.tensor(array, requires_grad=True)
        window, weight, bias = (
            layer.window,
            given[layer.name, "weight"],
            given.get((layer.name, "bias")),
        )
        x = held[layer.reads.number]
        groups = layer.operation.groups
        held[layer.makes.number] = torch.nn.functional.conv2d(
            x, weight, bias, window.stride, window.pad, 1, groups
        )
        for step in layer.sfu:
            xs = [held[tensor.number] for tensor in step.reads]
            joined = {"add": sum, "concat": lambda xs: torch.cat(xs, 1)}.get(step.operation.type)
            held[step.makes.number] = (
                joined(xs) if joined else step.operation.torch(torch.nn, step.input)(xs[0])
            )
    logits = held[layers[-1].makes.number].flatten(1)
    loss = torch.nn.functional.cross_entropy(logits, torch.tensor(data.train_labels))
    loss.backward()
    assert result.train.mean_loss == pytest.approx(loss.item(), rel=1e-5)
    for (layer_name, name), value in given.items():
        moved = -0.01 * value.grad.numpy()
        here = found[layer_name][name] - start[layer_name][name]
        assert np.abs(moved).max() > 0
        assert np.abs(here - moved).max() <= 1e-3 * np.abs(moved).max() + 1e-7, (
            f"{layer_name}/{name}"
        )


@pytest.mark.parametrize("mpiexec", ["openmpi"], indirect=True)
def test_ranks(mpiexec: Any, bits: Any, settings_of: Any, reference: Any, tmp_path: Path) -> None:
    out = tmp_path / "run.h5"
    keys = {**settings_of(devices=7), "out": str(out)}
    words = [
        word for key, value in keys.items() for word in (f"--{key.replace('_', '-')}", str(value))
    ]
    mpiexec(2, ["-m", "emuchain", "train", *words], timeout=300)
    with h5py.File(out) as file:
        found = {
            layer: {n: array[()] for n, array in arrays.items()}
            for layer, arrays in file["weights"].items()
        }
    assert bits(found) == bits(
        {layer: dict(sorted(arrays.items())) for layer, arrays in reference[0].items()}
    )
