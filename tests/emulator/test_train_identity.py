"""The mapping never changes the numbers: VGG-11, 20 mini-batches, bit for bit the same wherever it is computed.

The images are CIFAR-shaped and built in; EMUCHAIN_TEST_CIFAR10=DIR takes CIFAR-10 instead.
"""

import os
from pathlib import Path

import h5py
import numpy as np
import pytest

from emuchain.comm.ranks import Alone
from emuchain.emulator.config.config import load_config
from emuchain.emulator.data.load import load
from emuchain.emulator.plan.plan import make_plan
from emuchain.emulator.run.train import Weights, train

BATCH, STEPS = 4, 20
# With mini-batches this small, a larger rate would let VGG-11 diverge.
FLAGS = {"network": "vgg11-cifar", "batch": BATCH, "samples": BATCH * STEPS, "schedule": "sync", "seed": 3}
FLAGS |= {"learning_rate": 0.001, "test_samples": 8}


def data_folder(small_cifar: Path) -> str:
    return os.environ.get("EMUCHAIN_TEST_CIFAR10", str(small_cifar))


def trained(small_cifar: Path, **flags: object) -> Weights:
    """The weights after an epoch in this process."""
    config = load_config(None, {**FLAGS, **flags})
    data = load(data_folder(small_cifar)).first(BATCH * STEPS).test_first(8)
    found: Weights = {}
    train(make_plan(config, 1), data, Alone(), lambda _: None, lambda _, w: found.update(w), gather_weights=True)
    return found


def assert_identical(found: Weights, expected: Weights) -> None:
    """The same arrays of the same bits."""
    assert found.keys() == expected.keys()
    for layer, arrays in expected.items():
        assert found[layer].keys() == arrays.keys()
        for name, array in arrays.items():
            assert found[layer][name].shape == array.shape
            assert np.array_equal(found[layer][name].view(np.uint32), array.view(np.uint32)), f"{layer}/{name} differs"


@pytest.fixture(scope="module")
def reference(small_cifar: Path) -> Weights:
    """One device, micro-batches of 4."""
    return trained(small_cifar, devices=1, micro_batch=4)


def test_training_changes_every_weight(reference: Weights, small_cifar: Path) -> None:
    other = trained(small_cifar, devices=1, micro_batch=4, seed=4)
    for layer, arrays in reference.items():
        assert np.isfinite(arrays["weight"]).all()
        assert not np.array_equal(arrays["weight"], other[layer]["weight"])


@pytest.mark.parametrize(("devices", "micro_batch"), [(1, 1), (2, 4), (3, 2), (5, 4), (8, 4), (8, 1)])
def test_one_process(reference: Weights, small_cifar: Path, devices: int, micro_batch: int) -> None:
    assert_identical(trained(small_cifar, devices=devices, micro_batch=micro_batch), reference)


def test_micro_batches_of_16(small_cifar: Path) -> None:
    batches_of_16 = {"batch": 16, "samples": 80, "devices": 3}
    expected = trained(small_cifar, **batches_of_16, micro_batch=1)
    for micro_batch in (4, 16):
        assert_identical(trained(small_cifar, **batches_of_16, micro_batch=micro_batch), expected)


@pytest.mark.parametrize(("ranks", "devices"), [(2, 2), (2, 5), (3, 8), (8, 8), (4, 3)])
def test_ranks(mpiexec, reference: Weights, small_cifar: Path, tmp_path: Path, ranks: int, devices: int) -> None:  # type: ignore[no-untyped-def]  # a fixture
    out = tmp_path / "run.h5"
    flags = [word for key, value in FLAGS.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    flags += ["--devices", str(devices), "--micro-batch", "4", "--data", data_folder(small_cifar), "--out", str(out)]
    mpiexec(ranks, ["-m", "emuchain", "train", *flags], timeout=300)
    with h5py.File(out) as file:
        found = {
            layer: {name: array[()] for name, array in arrays.items()} for layer, arrays in file["weights"].items()
        }
    assert_identical(found, reference)
