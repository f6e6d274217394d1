"""Optimisers, learning rates and smoothed labels in whole runs: PyTorch's losses, and the same bits
everywhere.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.data import Dataset, load_data
from emuchain.emulator.device import epoch_order
from emuchain.emulator.device.memories import initial_weights
from emuchain.emulator.network import load_network
from emuchain.emulator.network.operations.activations import Relu
from emuchain.emulator.network.operations.pool import AveragePool, MaxPool

from .pairs import data_of, description
from .test_identity import assert_identical

OPTIMIZERS = ["sgd", "nesterov", "adam", "adamw"]
BATCH, STEPS = 8, 10
RATES = {"sgd": 5e-4, "nesterov": 5e-4, "adam": 1e-4, "adamw": 1e-4}
DECAYS = {"sgd": 5e-4, "nesterov": 5e-4, "adam": 0.01, "adamw": 0.01}
COSINE = {"lr_schedule": "cosine", "lr_warm_up": 4, "label_smoothing": 0.1}

NORMALISED: dict[str, Any] = {
    "name": "normalised",
    "input": [3, 32, 32],
    "layers": [
        {"type": "conv", "channels": 9, "kernel": 3, "stride": 2},
        {"type": "batch-norm"},
        {"type": "relu"},
        {"type": "conv", "channels": 7, "kernel": 3, "stride": 2},
        {"type": "batch-norm"},
        {"type": "relu"},
        {"type": "fc", "features": 10},
        {"type": "softmax"},
    ],
}
RECURRENT = description("between others")


@pytest.fixture(scope="module")
def images() -> Dataset:
    return load_data("shapes").first(BATCH * STEPS).test_first(2)


def trained(network: Any, data: Dataset, optimizer: str, **settings: Any) -> emuchain.Results:
    keys = {
        "schedule": "sync",
        "devices": 1,
        "batch": BATCH,
        "learning_rate": 0.001,
        "seed": 5,
        **COSINE,
    }
    return emuchain.train(network, data=data, optimizer=optimizer, **{**keys, **settings})


def torch_losses(
    data: Dataset, optimizer: str, smoothing: float
) -> tuple[list[float], list[float]]:
    """Losses and rates of quick-cifar in plain PyTorch, with a warm-up of 4 mini-batches, then a
    cosine.
    """
    torch = pytest.importorskip("torch", reason="PyTorch is what losses are compared with")
    f, network, parameters = torch.nn.functional, load_network("quick-cifar"), dict[str, Any]()
    for layer in network.layers:
        oc, ic, *_ = layer.weight_shape
        weight = torch.tensor(
            initial_weights(layer, network.start, 5, range(ic), range(oc)), requires_grad=True
        )
        parameters[layer.name] = weight, torch.zeros(oc, requires_grad=True) if layer.bias else None
    flat = [each for pair in parameters.values() for each in pair if each is not None]
    keys: dict[str, Any] = {"lr": RATES[optimizer], "weight_decay": DECAYS[optimizer]}
    if optimizer in ("sgd", "nesterov"):
        found = torch.optim.SGD(flat, momentum=0.9, nesterov=optimizer == "nesterov", **keys)
    else:
        found = (torch.optim.AdamW if optimizer == "adamw" else torch.optim.Adam)(flat, **keys)
    warm_up = torch.optim.lr_scheduler.LinearLR(found, 1 / 4, total_iters=3)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(found, STEPS - 4)
    schedule = torch.optim.lr_scheduler.SequentialLR(found, [warm_up, cosine], [4])
    order, normalisation, losses, rates = (
        epoch_order(5, 0, data.n_train),
        data.normalisation(),
        [],
        [],
    )
    for first in range(0, data.n_train, BATCH):
        chosen = order[first : first + BATCH]
        x = torch.from_numpy(normalisation.apply(data.train_images[chosen]))
        for layer in network.layers:
            x = f.conv2d(
                x, *parameters[layer.name], stride=layer.window.stride, padding=layer.window.pad
            )
            for step in layer.sfu:
                op = step.operation
                assert isinstance(op, Relu | MaxPool | AveragePool), f"{op} is not compared here"
                if isinstance(op, Relu):
                    x = f.relu(x)
                else:
                    pool = f.max_pool2d if isinstance(op, MaxPool) else f.avg_pool2d
                    x = pool(x, op.kernel, op.step, op.pad)
        loss = f.cross_entropy(
            x.flatten(1), torch.from_numpy(data.train_labels[chosen]), label_smoothing=smoothing
        )
        found.zero_grad()
        loss.backward()
        losses.append(loss.item())
        rates.append(found.param_groups[0]["lr"])
        found.step()
        schedule.step()
    return losses, rates


@pytest.mark.filterwarnings("ignore:The epoch parameter")
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_ten_losses_are_those_of_pytorch(images: Dataset, optimizer: str, smoothing: float) -> None:
    losses, rates = torch_losses(images, optimizer, smoothing)
    keys = {
        "devices": 3,
        "micro_batch": 3,
        "learning_rate": RATES[optimizer],
        "weight_decay": DECAYS[optimizer],
    }
    run = trained("quick-cifar", images, optimizer, **{**keys, "label_smoothing": smoothing})
    assert run.steps["loss"].tolist() == pytest.approx(losses, rel=1e-5)
    assert run.steps["learning_rate"].tolist() == pytest.approx(rates, rel=1e-12)
    assert abs(losses[-1] - losses[0]) > 1e-3  # it does learn something that may differ


@pytest.mark.parametrize("optimizer", OPTIMIZERS[1:])
@pytest.mark.parametrize("network", [NORMALISED, RECURRENT], ids=["normalised", "recurrent"])
def test_bits_do_not_depend_on_mapping_and_micro_batch(
    images: Dataset, network: Any, optimizer: str
) -> None:
    data = images if network is NORMALISED else data_of(24)
    expected = trained(network, data, optimizer, micro_batch=8)
    for devices, micro_batch in ((2, 3), (5, 8)):
        found = trained(network, data, optimizer, devices=devices, micro_batch=micro_batch)
        assert_identical(found.weights, expected.weights)
        assert found.steps["loss"].tolist() == expected.steps["loss"].tolist()
    assert not np.array_equal(
        found.weight_arrays[next(iter(found.weight_arrays))],
        trained(network, data, "sgd").weight_arrays[next(iter(found.weight_arrays))],
    )


@pytest.mark.parametrize(
    "schedule", ["gpipe", "1f1b-so", "1f1b-sno", "fbp-as", "zero-bubble", "interleaved"]
)
def test_schedules_that_drain_have_the_bits_of_sync(images: Dataset, schedule: str) -> None:
    engines = {
        "engines": "shared" if schedule == "fbp-as" else "turns",
        "micro_batch": 2,
        "devices": 2,
    }
    expected = trained("quick-cifar", images, "adamw", micro_batch=2)
    assert_identical(
        trained("quick-cifar", images, "adamw", schedule=schedule, **engines).weights,
        expected.weights,
    )


@pytest.mark.parametrize("schedule", ["fpdeep", "2bw", "pipedream"])
@pytest.mark.parametrize("optimizer", ["nesterov", "adam"])
def test_schedules_with_older_weights_learn(images: Dataset, schedule: str, optimizer: str) -> None:
    """Their weights follow from the mapping; on one device they have versions of their own, too."""
    keys = {
        "schedule": schedule,
        "micro_batch": 4,
        "devices": 3,
        "epochs": 3,
        "label_smoothing": 0.0,
    }
    run = trained("quick-cifar", images, optimizer, **keys)
    sync = trained("quick-cifar", images, optimizer, **{**keys, "schedule": "sync"})
    assert run.history["train_loss"][-1] < run.history["train_loss"][0]
    assert not np.array_equal(run.weights["conv1"]["weight"], sync.weights["conv1"]["weight"])


def test_replicas_take_the_mean_gradient(images: Dataset) -> None:
    """Sums in another order than those of one chain, and otherwise the same: averaged before the
    moments.
    """
    alone = trained("quick-cifar", images, "adam", learning_rate=1e-4)
    ring = trained("quick-cifar", images, "adam", learning_rate=1e-4, replicas=2, devices=2)
    assert ring.steps["loss"].tolist() == pytest.approx(alone.steps["loss"].tolist(), rel=1e-5)
    coded = trained(
        "quick-cifar",
        images,
        "adam",
        learning_rate=1e-4,
        replicas=2,
        devices=2,
        compress="inceptionn:-10",
    )
    assert coded.steps["loss"].tolist() != ring.steps["loss"].tolist()


@pytest.mark.parametrize("optimizer", OPTIMIZERS[1:])
def test_pairs_have_the_bits_of_a_chain(optimizer: str) -> None:
    data, network = data_of(24), description("lstm")
    chain = trained(network, data, optimizer)
    pair = trained(network, data, optimizer, schedule="farnn", cluster="farnn-9p", devices=None)
    assert_identical(pair.weights, chain.weights)
    assert pair.steps["loss"].tolist() == chain.steps["loss"].tolist()


def test_smoothing_leaves_tests_alone(images: Dataset) -> None:
    """At a rate at which weights hardly move, tests judge the same network by the labels
    themselves.
    """
    keys = {"learning_rate": 1e-12}
    smooth, plain = (
        trained("quick-cifar", images, "sgd", **keys, label_smoothing=each) for each in (0.5, 0.0)
    )
    assert smooth.history["test_loss"] == pytest.approx(plain.history["test_loss"], rel=1e-5)
    assert smooth.history["train_loss"] != pytest.approx(plain.history["train_loss"], rel=1e-3)


def test_steps_are_the_history(images: Dataset) -> None:
    run = trained("quick-cifar", images, "sgd", epochs=2, batch=24)
    steps = run.steps
    assert steps["epoch"].tolist() == [1] * 4 + [2] * 4
    assert steps["step"].tolist() == [1, 2, 3, 4] * 2
    sizes = np.array([24, 24, 24, 8])
    for epoch in range(2):
        of_epoch = slice(4 * epoch, 4 * epoch + 4)
        mean = (sizes * steps["loss"][of_epoch]).sum() / sizes.sum()
        assert run.history["train_loss"][epoch] == pytest.approx(mean, rel=1e-12)
        assert run.history["learning_rate"][epoch] == steps["learning_rate"][of_epoch][-1]
    assert np.all(np.diff(steps["virtual_time_ps"]) > 0)
    assert steps["virtual_time_ps"][-1] == run.virtual_time_ps


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimizer": "nesterov", "momentum": 0}, "`momentum` = 0: `optimizer` = 'nesterov'"),
        ({"lr_schedule": "step"}, "`lr_schedule` = 'step': `step` needs `every`"),
        ({"lr_schedule": "cosine:at=1"}, "'at=1' of `cosine:at=1` is too much; write `cosine`"),
    ],
)
@pytest.mark.parametrize("schedule", ["sync", "farnn"])
def test_what_contradicts_itself_is_refused(
    settings: dict[str, Any], message: str, schedule: str
) -> None:
    cluster = "vc709" if schedule == "sync" else "farnn-9p"
    with pytest.raises(InputError) as error:
        emuchain.train("lstm-rows", cluster, schedule=schedule, samples=8, **settings)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.slow
@pytest.mark.parametrize("mpiexec", ["openmpi"], indirect=True)
def test_ranks_have_the_bits_of_one_process(mpiexec: Any, tmp_path: Path) -> None:
    keys = [
        "--samples",
        "48",
        "--test-samples",
        "4",
        "--batch",
        "8",
        "--optimizer",
        "adam",
        "--learning-rate",
        "0.001",
    ]
    keys += [
        "--lr-schedule",
        "cosine",
        "--lr-warm-up",
        "3",
        "--label-smoothing",
        "0.1",
        "--progress",
        "none",
    ]
    keys += ["--replicas", "2", "--devices", "2", "--compress", "inceptionn:-10", "--epochs", "2"]
    found: list[dict[str, bytes]] = []
    for ranks in (1, 3):
        out, log = tmp_path / f"{ranks}.h5", tmp_path / f"{ranks}.csv"
        mpiexec(
            ranks,
            [
                "-m",
                "emuchain",
                "train",
                "quick-cifar",
                *keys,
                "--out",
                str(out),
                "--log",
                f"csv:{log}",
            ],
        )
        with h5py.File(out) as file:
            groups = {"steps": file["steps"], **file["weights"]}
            held = {
                f"{group}/{name}": of[name][()].tobytes()
                for group, of in groups.items()
                for name in of
            }
        found.append({**held, "log": log.read_bytes()})
    assert found[0] == found[1]
    assert found[0]["log"].count(b"\n") == 1 + 2 * 6
