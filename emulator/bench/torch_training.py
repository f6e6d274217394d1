"""Plain PyTorch training of one of our networks, for `bench chain`: a program that trains until it is ended.

    python -m emuchain.emulator.bench.torch_training NETWORK BATCH THREADS

Layers, data set, loss and optimiser are the chain's; modules are PyTorch's own, with contiguous NCHW float32 arrays.
"""

from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..data import load_data
from ..network import Layer, Network, load_network

LEARNING_RATE, MOMENTUM, WEIGHT_DECAY = 0.001, 0.9, 0.0005


def model(network: Network) -> Any:
    """Return the network as a torch.nn.Sequential with He's initial weights; the softmax is part of the loss."""
    nn = importlib.import_module("torch").nn
    modules = [module for layer in network.layers for module in _modules(nn, layer)]
    for module in modules:
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(module.weight)
    return nn.Sequential(*modules)


def _modules(nn: Any, layer: Layer) -> Iterator[Any]:
    yield from layer.operation.torch(nn, layer.input)
    for step in layer.sfu:
        yield step.operation.torch(nn)


def train(name: str, batch: int, threads: int, steps: int | None = None) -> None:
    """Train for `steps` mini-batches, or without end if None; print a line for each."""
    torch = importlib.import_module("torch")
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    network = model(load_network(name))
    optimiser = torch.optim.SGD(network.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    data = load_data("shapes")
    normalisation = data.normalisation()
    random = np.random.default_rng(1)
    whole = data.n_train // batch
    for step in itertools.count() if steps is None else range(steps):
        if step % whole == 0:
            order = random.permutation(data.n_train)
        chosen = order[step % whole * batch :][:batch]
        images = torch.from_numpy(normalisation.apply(data.train_images[chosen]))
        labels = torch.from_numpy(data.train_labels[chosen])
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(images).flatten(1), labels)
        loss.backward()
        optimiser.step()
        print(f"{(step + 1) * batch}/{data.n_train} samples  loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    train(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
