"""The mapping never changes the numbers: VGG-11, 20 mini-batches, bit for bit the same wherever it
is computed; on one board, too, which has no room for VGG-11 on built multipliers.

The images are CIFAR-shaped and built in; EMUCHAIN_TEST_CIFAR10=DIR takes CIFAR-10 instead.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from emuchain.emulator.run import Weights

from ..counted import COUNTED, COUNTED_WORDS

BATCH, STEPS = 4, 20
# With mini-batches this small, a larger rate would let VGG-11 diverge.
FLAGS = {
    "network": "vgg11-cifar",
    "batch": BATCH,
    "samples": BATCH * STEPS,
    "schedule": "sync",
    "seed": 3,
}
FLAGS |= {"learning_rate": 0.001, "test_samples": 8}


def data_folder(small_cifar: Path) -> str:
    return os.environ.get("EMUCHAIN_TEST_CIFAR10", str(small_cifar))


TrainKeys = Callable[..., Weights]


@pytest.fixture(scope="module")
def train_keys(plan_of: Any, trained: Any, small_cifar: Path) -> TrainKeys:
    """Trains an epoch with these keys in this process; gives the weights."""

    def train(**keys: object) -> Weights:
        flags = {**FLAGS, "data": data_folder(small_cifar), "changes": COUNTED, **keys}
        return trained(plan_of(**flags)).weights

    return train


def assert_identical(found: Weights, expected: Weights) -> None:
    """The same arrays of the same bits."""
    assert found.keys() == expected.keys()
    for layer, arrays in expected.items():
        assert found[layer].keys() == arrays.keys()
        for name, array in arrays.items():
            assert found[layer][name].shape == array.shape
            assert np.array_equal(found[layer][name].view(np.uint32), array.view(np.uint32)), (
                f"{layer}/{name} differs"
            )


@pytest.fixture(scope="module")
def reference(train_keys: TrainKeys) -> Weights:
    """One device, micro-batches of 4."""
    return train_keys(devices=1, micro_batch=4)


def test_training_changes_every_weight(reference: Weights, train_keys: TrainKeys) -> None:
    other = train_keys(devices=1, micro_batch=4, seed=4)
    for layer, arrays in reference.items():
        assert np.isfinite(arrays["weight"]).all()
        assert not np.array_equal(arrays["weight"], other[layer]["weight"])


@pytest.mark.parametrize(
    ("devices", "micro_batch"), [(1, 1), (2, 4), (3, 2), (5, 4), (8, 4), (8, 1)]
)
def test_one_process(
    reference: Weights, train_keys: TrainKeys, devices: int, micro_batch: int
) -> None:
    assert_identical(train_keys(devices=devices, micro_batch=micro_batch), reference)


def test_micro_batches_of_16(train_keys: TrainKeys) -> None:
    batches_of_16 = {"batch": 16, "samples": 80, "devices": 3}
    expected = train_keys(**batches_of_16, micro_batch=1)
    for micro_batch in (4, 16):
        assert_identical(train_keys(**batches_of_16, micro_batch=micro_batch), expected)


@pytest.mark.sampled(2)
# A device a rank; devices that share ranks unevenly; a rank without a device.
@pytest.mark.parametrize(
    ("mpiexec", "ranks", "devices"),
    [("mpich", 4, 4), ("mpich", 3, 8), ("openmpi", 2, 5), ("openmpi", 4, 3)],
    indirect=["mpiexec"],
)
def test_ranks(
    mpiexec: Any, reference: Weights, small_cifar: Path, tmp_path: Path, ranks: int, devices: int
) -> None:
    out = tmp_path / "run.h5"
    flags = [
        word for key, value in FLAGS.items() for word in (f"--{key.replace('_', '-')}", str(value))
    ]
    flags += [
        "--devices",
        str(devices),
        "--micro-batch",
        "4",
        "--data",
        data_folder(small_cifar),
        "--out",
        str(out),
        *COUNTED_WORDS,
    ]
    mpiexec(ranks, ["-m", "emuchain", "train", *flags], timeout=300)
    with h5py.File(out) as file:
        found = {
            layer: {name: array[()] for name, array in arrays.items()}
            for layer, arrays in file["weights"].items()
        }
    assert_identical(found, reference)
