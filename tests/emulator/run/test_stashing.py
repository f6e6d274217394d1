"""Weight stashing trains as worked out in NumPy: B uses the version of its F, while later F already
use newer ones.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.device import epoch_order
from emuchain.emulator.device.memories import initial_weights
from emuchain.emulator.schedule import EpochShape, Kind, Schedule, ScheduleKind

from ..schedule.chains import newest_version, stashing

AHEAD = 3
SAMPLES, BATCH, SEED, RATE, MOMENTUM, DECAY = 36, 6, 3, 0.01, 0.9, 0.0005
NETWORK = {
    "name": "perceptron",
    "input": [3, 32, 32],
    "layers": [
        {"type": "fc", "features": 12},
        {"type": "relu"},
        {"type": "fc", "features": 10},
        {"type": "softmax"},
    ],
}


def three_ahead(epoch: EpochShape) -> Schedule:
    """Each device does F of three mini-batches, then in turn B of one, its update, and F of the
    next.
    """
    return stashing(epoch, lambda _: AHEAD)


def version_of(number: int) -> int:
    """The version of the weights that F and B of a mini-batch use."""
    return newest_version(number, AHEAD)


KIND = ScheduleKind("stashing", three_ahead, "B uses the version of its F", drains=False)


def stashed(data: Path, devices: int) -> emuchain.Results:
    keys: dict[str, Any] = {
        "samples": SAMPLES,
        "test_samples": 5,
        "batch": BATCH,
        "micro_batch": BATCH,
        "seed": SEED,
    }
    keys |= {"learning_rate": RATE, "momentum": MOMENTUM, "weight_decay": DECAY}
    return emuchain.train(NETWORK, devices=devices, data=data, schedule=KIND, **keys)


def by_hand(data: Path, versions: list[int]) -> list[np.ndarray]:
    """The weights and biases after an epoch in which mini-batch n uses version `versions[n]`, in
    double precision.
    """
    held = emuchain.load_data(str(data)).first(SAMPLES)
    order = epoch_order(SEED, 0, SAMPLES)
    images = (
        held.normalisation().apply(held.train_images)[order].reshape(SAMPLES, -1).astype(np.float64)
    )
    labels = np.eye(10)[held.train_labels[order]]
    weights = [
        initial_weights(
            layer, "he", SEED, range(layer.weight_shape[1]), range(layer.weight_shape[0])
        )
        for layer in emuchain.load_network(NETWORK).layers
    ]
    first = [array.reshape(len(array), -1).astype(np.float64) for array in weights]
    history = [[first[0], np.zeros(12), first[1], np.zeros(10)]]
    velocity = [np.zeros_like(array) for array in history[0]]
    for number, version in enumerate(versions):
        batch = slice(number * BATCH, (number + 1) * BATCH)
        w1, b1, w2, b2 = history[version]
        x = images[batch]
        a = np.maximum(x @ w1.T + b1, 0)
        z = a @ w2.T + b2
        e = np.exp(z - z.max(axis=1, keepdims=True))
        dz = e / e.sum(axis=1, keepdims=True) - labels[batch]
        da = (dz @ w2) * (a > 0)
        gradients = [da.T @ x, da.sum(0), dz.T @ a, dz.sum(0)]
        velocity = [
            MOMENTUM * v + g / BATCH + DECAY * w
            for v, g, w in zip(velocity, gradients, history[-1], strict=True)
        ]
        history.append([w - RATE * v for w, v in zip(history[-1], velocity, strict=True)])
    return history[-1]


@pytest.fixture(scope="module")
def one_device(small_cifar: Path) -> emuchain.Results:
    return stashed(small_cifar, 1)


def arrays_of(results: emuchain.Results) -> list[np.ndarray]:
    layers = [results.weights["fc1"], results.weights["fc2"]]
    return [
        array.reshape(len(array), -1).squeeze()
        for of in layers
        for array in (of["weight"], of["bias"])
    ]


def distance(some: list[np.ndarray], others: list[np.ndarray]) -> float:
    """The largest difference over the largest move of an array."""
    return max(
        float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(some, others, strict=True)
    )


def test_weights_are_those_worked_out(small_cifar: Path, one_device: emuchain.Results) -> None:
    """And are far from those of mini-batch SGD, and from those of a B that used the newest version
    in its place.
    """
    versions = [version_of(number) for number in range(SAMPLES // BATCH)]
    assert versions == [0, 0, 0, 1, 2, 3]
    found = arrays_of(one_device)
    assert distance(found, by_hand(small_cifar, versions)) < 1e-4
    assert distance(found, by_hand(small_cifar, [*range(6)])) > 1e-2


@pytest.mark.parametrize("devices", [2, 3, 5])
def test_the_mapping_changes_no_bit(
    small_cifar: Path, one_device: emuchain.Results, bits: Any, devices: int
) -> None:
    assert bits(stashed(small_cifar, devices).weights) == bits(one_device.weights)


def test_b_uses_an_older_version_than_the_newest() -> None:
    """Otherwise the tests above would show nothing."""
    program = three_ahead(EpochShape(1, SAMPLES, BATCH, BATCH)).programs([0])[0]
    newest, late = 0, 0
    for action in program:
        newest = action.index if action.kind is Kind.UPDATE else newest
        late += (
            action.kind is Kind.BACKWARD and action.version is not None and action.version < newest
        )
    assert late == 5
    assert [len(list(group)) for _, group in itertools.groupby(map(version_of, range(6)))] == [
        3,
        1,
        1,
        1,
    ]
