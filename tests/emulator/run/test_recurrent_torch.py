"""PyTorch trains recurrent networks from the same weights on the same samples: the same losses, to
fp32 rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emuchain.emulator.config import load_config
from emuchain.emulator.data import Dataset, load_data
from emuchain.emulator.device import epoch_order
from emuchain.emulator.network import Network, load_network
from emuchain.emulator.plan import ChainPlan, make_plan
from emuchain.emulator.run import ChainTrainer, StepResult, Weights
from emuchain.launch import SingleProcess

from .sequences import Table, network, recurrent, sequences

torch = pytest.importorskip("torch", reason="PyTorch, the peer of these tests, is not installed")

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")

BATCH, STEPS, DEVICES = 8, 10, 2
RATE, MOMENTUM, DECAY = 0.05, 0.9, 0.0005

BIDIRECTIONAL = [
    recurrent("lstm", 17, bidirectional=True),
    recurrent("gru", 12, bidirectional=True),
]
NETWORKS: dict[str, str | Table] = {
    "lstm-rows": "lstm-rows",
    "gru-rows": "gru-rows",
    "char-lstm": "char-lstm",
    "bidirectional": network(*BIDIRECTIONAL),
    "projection": network(recurrent("lstm", 24, projection=9), recurrent("lstm", 16), end="each"),
}


def data_of(name: str) -> Dataset:
    samples = BATCH * STEPS
    if name == "char-lstm":
        return load_data("text", 64).first(samples).test_first(1)
    if name in ("bidirectional", "projection"):
        return sequences(each_step=name == "projection", samples=samples)
    rng = np.random.default_rng(1)
    images, labels = (
        rng.integers(0, 256, (samples, 1, 28, 28), dtype=np.uint8),
        rng.integers(0, 10, samples),
    )
    return Dataset("digits", images, labels, images[:1], labels[:1], tuple("0123456789"))


class Peer:
    """A network of PyTorch's modules, with given weights."""

    def __init__(self, found: Network, weights: Weights) -> None:
        self.network, self.modules = found, dict[str, Any]()
        for layer in found.layers:
            arrays = {name: torch.tensor(array) for name, array in weights[layer.name].items()}
            if layer.operation.type == "embedding":
                arrays["weight"] = arrays["weight"][:, :, 0, 0].T
            elif not layer.operation.recurs:
                arrays["weight"] = arrays["weight"].flatten(1)
            [module] = self._modules(layer)
            module.load_state_dict(arrays)
            self.modules[layer.name] = module

    @staticmethod
    def _modules(layer: Any) -> list[Any]:
        if layer.operation.type == "conv":  # of one row and one column: the same for each step
            return [torch.nn.Linear(layer.input[0], layer.channels)]
        return [
            module
            for module in layer.operation.torch(torch.nn, layer.input)
            if list(module.parameters())
        ]

    def parameters(self) -> list[Any]:
        return [parameter for module in self.modules.values() for parameter in module.parameters()]

    def loss(self, x: Any, labels: Any) -> Any:
        """The mean cross-entropy of `x` (samples, steps, values), or (samples, steps) of
        symbols.
        """
        for layer in self.network.layers:
            if layer.operation.type == "fc":
                x = x.transpose(1, 2).flatten(1)
            x = self.modules[layer.name](x)
            x = x[0] if layer.operation.recurs else x
            for step in layer.sfu:
                assert step.operation.type == "last-step"
                x = x[:, -1:]
        return torch.nn.functional.cross_entropy(x.flatten(0, -2), labels.flatten())

    def weights(self) -> Weights:
        found: Weights = {}
        for layer in self.network.layers:
            arrays = {
                name: p.detach().numpy() for name, p in self.modules[layer.name].named_parameters()
            }
            if layer.operation.type == "embedding":
                arrays["weight"] = arrays["weight"].T
            found[layer.name] = arrays
        return found


def inputs(data: Dataset, chosen: Any) -> Any:
    """What PyTorch's network takes of some samples: columns of images' rows, or symbols."""
    if data.symbols:
        return torch.from_numpy(data.train_images[chosen][:, 0, :, 0].astype(np.int64))
    maps = data.normalisation().apply(data.train_images[chosen])
    return torch.from_numpy(
        np.ascontiguousarray(maps.transpose(0, 2, 1, 3).reshape(len(maps), maps.shape[2], -1))
    )


def torch_training(peer: Peer, data: Dataset, seed: int, steps: int) -> list[float]:
    optimiser = torch.optim.SGD(peer.parameters(), lr=RATE, momentum=MOMENTUM, weight_decay=DECAY)
    order, losses = epoch_order(seed, 0, data.n_train), []
    for first in range(0, steps * BATCH, BATCH):
        chosen = order[first : first + BATCH]
        optimiser.zero_grad()
        loss = peer.loss(inputs(data, chosen), torch.from_numpy(data.train_labels[chosen]))
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


def plan_of(name: str, samples: int, seed: int) -> ChainPlan:
    rule = {"learning_rate": RATE, "momentum": MOMENTUM, "weight_decay": DECAY}
    keys = {
        "batch": BATCH,
        "micro_batch": 3,
        "devices": DEVICES,
        "schedule": "sync",
        "seed": seed,
        "samples": samples,
    }
    return make_plan(load_config(None, {**keys, **rule}), network=load_network(NETWORKS[name]))


def chain_training(plan: ChainPlan, data: Dataset) -> tuple[Weights, list[float], Weights]:
    """The weights at the start, losses and weights after an epoch on the chain."""
    losses: list[float] = []

    def on_step(result: StepResult) -> None:
        losses.append(result.tally.mean_loss)

    ranks = SingleProcess()
    ranks.on_object = on_step
    trainer = ChainTrainer.of(plan, data, ranks)
    start = {
        name: {key: of.copy() for key, of in arrays.items()}
        for name, arrays in trainer.weights().items()
    }
    trainer.epoch(0)
    return start, losses, trainer.weights()


@pytest.mark.parametrize("name", NETWORKS)
def test_the_first_update(name: str) -> None:
    data = data_of(name)
    # Samples of an epoch are in another order than those of a longer one, so this is one of a
    # single mini-batch.
    data = data.first(BATCH)
    plan = plan_of(name, BATCH, seed=5)
    start, losses, found = chain_training(plan, data)
    peer = Peer(plan.network, start)
    assert losses == pytest.approx(torch_training(peer, data, 5, 1), rel=1e-5)
    for layer, arrays in peer.weights().items():
        assert len(arrays) == len(found[layer])
        for key, array in arrays.items():
            before, here = (of[layer][key].reshape(array.shape) for of in (start, found))
            moved, moved_here = array - before, here - before
            assert np.abs(moved).max() > 0, f"{layer}/{key} did not move"
            assert np.abs(moved_here - moved).max() <= 1e-3 * np.abs(moved).max() + 1e-8, (
                f"{layer}/{key}"
            )


@pytest.mark.parametrize("name", NETWORKS)
def test_ten_losses(name: str) -> None:
    data = data_of(name)
    plan = plan_of(name, BATCH * STEPS, seed=6)
    start, losses, _ = chain_training(plan, data)
    assert len(losses) == STEPS
    assert losses == pytest.approx(
        torch_training(Peer(plan.network, start), data, 6, STEPS), rel=1e-5
    )
