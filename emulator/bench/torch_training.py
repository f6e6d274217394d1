"""Plain PyTorch training of one of our networks, for `bench chain`: a program that trains until it is ended.

    python -m emuchain.emulator.bench.torch_training NETWORK BATCH THREADS

Layers, data set, loss and optimiser are the chain's; modules are PyTorch's own, with contiguous NCHW float32 arrays.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import operator
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..data import load_data
from ..network import Layer, Network, load_network

LEARNING_RATE, MOMENTUM, WEIGHT_DECAY = 0.001, 0.9, 0.0005


def model(network: Network) -> Any:
    """Return the network as a module with He's initial weights; the softmax is part of the loss."""
    torch = importlib.import_module("torch")
    nn = torch.nn
    steps = [step for layer in network.layers for step in _steps(nn, layer)]
    straight = all(after.reads == (before.makes,) for before, after in itertools.pairwise(steps))
    made = nn.Sequential(*(step.module for step in steps)) if straight else _graph(nn, steps)
    with torch.no_grad():
        made(torch.zeros(2, *network.input))  # makes what is made at the first use
    for module in made.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(module.weight)
    return made


class _Step(NamedTuple):
    """A module, and the numbers of the tensors that it reads and makes; a join has its function instead."""

    module: Any
    reads: tuple[int, ...]
    makes: int


def _steps(nn: Any, layer: Layer) -> Iterator[_Step]:
    modules = layer.operation.torch(nn, layer.input)
    yield _Step(modules[0] if len(modules) == 1 else nn.Sequential(*modules), (layer.reads.number,), layer.makes.number)
    for step in layer.sfu:
        reads = tuple(tensor.number for tensor in step.reads)
        yield _Step(_JOINS.get(step.operation.type) or step.operation.torch(nn), reads, step.makes.number)


def _added(*maps: Any) -> Any:
    return functools.reduce(operator.add, maps)


def _joined(*maps: Any) -> Any:
    return importlib.import_module("torch").cat(maps, dim=1)


_JOINS = {"add": _added, "concat": _joined}


def _graph(nn: Any, steps: Sequence[_Step]) -> Any:
    """Return the module of a network with shortcuts or branches."""
    last_use = {number: place for place, step in enumerate(steps) for number in step.reads}

    class Graph(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.steps = nn.ModuleList(step.module for step in steps if step.module not in _JOINS.values())

        def forward(self, images: Any) -> Any:
            known = {0: images}
            for place, step in enumerate(steps):
                made = step.module(*(known[number] for number in step.reads))
                known = {number: maps for number, maps in known.items() if last_use[number] > place}
                known[step.makes] = made
            return made

    return Graph()


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
