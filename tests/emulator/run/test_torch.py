"""PyTorch is the peer: the same start and the same order of samples give the same training, to fp32
rounding.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emuchain.emulator.data import Dataset, load_data
from emuchain.emulator.device import epoch_order
from emuchain.emulator.device.memories import initial_weights
from emuchain.emulator.network import Network, load_network
from emuchain.emulator.network.operations.activations import Relu
from emuchain.emulator.network.operations.normalisation import Lrn
from emuchain.emulator.network.operations.pool import AveragePool, MaxPool
from emuchain.emulator.plan import ChainPlan
from emuchain.emulator.run import StepResult, Weights, train
from emuchain.launch import SingleProcess

torch = pytest.importorskip("torch", reason="PyTorch, the peer of these tests, is not installed")

BATCH = 8
# A rate at which VGG-11 trains steadily with mini-batches this small: where losses leap, rounding
# grows with them.
RATE, MOMENTUM, DECAY = 0.0005, 0.9, 0.0005

NETWORK = """
name = "everything"
input = [3, 32, 32]
start = "xavier"
layers = [
  { type = "conv", channels = 20, kernel = 5, stride = 2, pad = 2, name = "a" },
  { type = "relu" },
  { type = "lrn", size = 5 },
  { type = "max-pool", kernel = 3, stride = 2, pad = 1 },
  { type = "conv", channels = 33, kernel = [3, 1], pad = [1, 0], bias = false, name = "b" },
  { type = "relu" },
  { type = "average-pool", kernel = 3, stride = 2 },
  { type = "conv", channels = 17, kernel = 1, name = "c" },
  { type = "lrn", size = 4, alpha = 0.1 },
  { type = "relu" },
  { type = "fc", features = 21, name = "d" },
  { type = "relu" },
  { type = "fc", features = 10, name = "e" },
  { type = "softmax" },
]
"""


def torch_loss(network: Network, parameters: dict[str, Any], x: Any, labels: Any) -> Any:
    """The mean cross-entropy of a network, written with PyTorch's functions."""
    f = torch.nn.functional
    for layer in network.layers:
        p = parameters[layer.name]
        x = f.conv2d(
            x, p["weight"], p.get("bias"), stride=layer.window.stride, padding=layer.window.pad
        )
        for step in layer.sfu:
            op = step.operation
            if isinstance(op, Relu):
                x = f.relu(x)
            elif isinstance(op, Lrn):
                x = f.local_response_norm(x, op.size, op.alpha, op.beta, op.k)
            elif isinstance(op, MaxPool):
                x = f.max_pool2d(x, op.kernel, op.step, op.pad)
            elif isinstance(op, AveragePool):
                x = f.avg_pool2d(x, op.kernel, op.step, op.pad)
            else:
                raise AssertionError(f"{op} is not compared here")
    return f.cross_entropy(x.flatten(1), labels)


def torch_training(
    network: Network, data: Dataset, seed: int, frozen: tuple[str, ...] = ()
) -> tuple[list[float], Weights]:
    """Losses and weights after an epoch of plain PyTorch, in which some layers need no
    gradients.
    """
    parameters = {}
    for layer in network.layers:
        oc, ic, *_ = layer.weight_shape
        weight = initial_weights(layer, network.start, seed, range(ic), range(oc))
        parameters[layer.name] = {"weight": torch.tensor(weight, requires_grad=True)}
        if layer.bias:
            parameters[layer.name]["bias"] = torch.zeros(oc, requires_grad=True)
    for name in frozen:
        for p in parameters[name].values():
            p.requires_grad_(False)
    flat = [p for layer in parameters.values() for p in layer.values() if p.requires_grad]
    optimiser = torch.optim.SGD(flat, lr=RATE, momentum=MOMENTUM, weight_decay=DECAY)
    order = epoch_order(seed, 0, data.n_train)
    normalisation = data.normalisation()
    losses = []
    for first in range(0, data.n_train, BATCH):
        chosen = order[first : first + BATCH]
        images = torch.from_numpy(normalisation.apply(data.train_images[chosen]))
        optimiser.zero_grad()
        loss = torch_loss(network, parameters, images, torch.from_numpy(data.train_labels[chosen]))
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    weights = {
        name: {kind: p.detach().numpy() for kind, p in layer.items()}
        for name, layer in parameters.items()
    }
    return losses, weights


def training_keys(network: str, seed: int, devices: int) -> dict[str, object]:
    """The keys of an epoch on the chain that PyTorch's is compared with."""
    keys = {"network": network, "batch": BATCH, "micro_batch": 3, "devices": devices, "seed": seed}
    return {
        **keys,
        "schedule": "sync",
        "learning_rate": RATE,
        "momentum": MOMENTUM,
        "weight_decay": DECAY,
    }


def emuchain_training(plan: ChainPlan, data: Dataset) -> tuple[list[float], Weights]:
    """Losses and weights after an epoch on the chain."""
    losses: list[float] = []
    weights: Weights = {}

    def on_step(result: StepResult) -> None:
        losses.append(result.tally.mean_loss)

    train(
        plan,
        data,
        SingleProcess(),
        on_step,
        lambda _, found: weights.update(found),
        gather_weights=True,
    )
    return losses, weights


def first_samples(folder: Path, samples: int) -> Dataset:
    return load_data(str(folder)).first(samples).test_first(1)


@pytest.fixture
def networks(tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "everything.toml"
    path.write_text(NETWORK)
    vgg = tmp_path / "vgg.toml"
    description = (
        Path(__file__).parents[3] / "emulator" / "network" / "zoo" / "vgg11-cifar.toml"
    ).read_text()
    vgg.write_text("\n".join(line for line in description.splitlines() if "dropout" not in line))
    return {
        "everything": str(path),
        "vgg11 without dropout": str(vgg),
        "quick-cifar": "quick-cifar",
    }


@pytest.mark.parametrize("name", ["everything", "vgg11 without dropout", "quick-cifar"])
def test_one_step_agrees_to_rounding(
    networks: dict[str, str], plan_of: Any, small_cifar: Path, name: str
) -> None:
    data = first_samples(small_cifar, BATCH)
    expected_losses, expected = torch_training(load_network(networks[name]), data, seed=5)
    losses, found = emuchain_training(
        plan_of(**training_keys(networks[name], seed=5, devices=3)), data
    )
    assert losses == pytest.approx(expected_losses, rel=1e-5)
    for layer, arrays in expected.items():
        for kind, array in arrays.items():
            # A step moves a weight by at most about the rate times its gradient; errors are those
            # of fp32 sums in another order, relative to the largest move in the layer.
            start = np.zeros_like(array)
            if kind == "weight":
                resolved = next(n for n in load_network(networks[name]).layers if n.name == layer)
                oc, ic, *_ = resolved.weight_shape
                start = initial_weights(
                    resolved, load_network(networks[name]).start, 5, range(ic), range(oc)
                )
            moved, moved_here = array - start, found[layer][kind] - start
            assert np.abs(moved).max() > 0, f"{layer}/{kind} did not move"
            assert np.abs(moved_here - moved).max() <= 1e-3 * np.abs(moved).max() + 1e-7, (
                f"{layer}/{kind}"
            )


@pytest.mark.parametrize("frozen", [("a", "b"), ("b", "d"), ("e",)], ids=str)
def test_frozen_layers_are_those_that_need_no_gradients(
    networks: dict[str, str], plan_of: Any, small_cifar: Path, frozen: tuple[str, ...]
) -> None:
    name, data = networks["everything"], first_samples(small_cifar, 10 * BATCH)
    expected_losses, expected = torch_training(load_network(name), data, seed=5, frozen=frozen)
    plan = plan_of(**training_keys(name, seed=5, devices=3), freeze=frozen)
    losses, found = emuchain_training(plan, data)
    assert losses == pytest.approx(expected_losses, rel=1e-5)
    for layer, arrays in expected.items():
        for kind, array in arrays.items():
            if layer in frozen:
                assert found[layer][kind].tobytes() == array.tobytes()
            assert np.abs(found[layer][kind] - array).max() <= 1e-5 * np.abs(array).max() + 1e-7, (
                f"{layer}/{kind}"
            )


@pytest.mark.parametrize("name", ["everything", "vgg11 without dropout"])
def test_losses_follow_over_twenty_steps(
    networks: dict[str, str], plan_of: Any, small_cifar: Path, name: str
) -> None:
    """The first ones to rounding. Later an activation next to zero may fall on the other side of a
    ReLU, or another of two equal maxima may win, which moves a loss by 1e-5 to 1e-4, as between
    PyTorch in float32 and in float64.
    """
    data = first_samples(small_cifar, 20 * BATCH)
    expected, _ = torch_training(load_network(networks[name]), data, seed=6)
    found, _ = emuchain_training(plan_of(**training_keys(networks[name], seed=6, devices=4)), data)
    assert len(found) == 20
    assert found[:10] == pytest.approx(expected[:10], rel=1e-5)
    assert found == pytest.approx(expected, rel=1e-3)
