"""Plain PyTorch training of a network of ours, for `bench chain`: a program that trains until it is ended.

    python -m emuchain.emulator.bench.torch_training NETWORK BATCH THREADS

The same layers, data set, loss and optimiser as the chain's; PyTorch's own modules, contiguous NCHW float32.
"""

from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..data.load import load
from ..network.layers import Dropout, Layer, Lrn, Network, Pool, Relu, SfuStep
from ..network.load import load_network

LEARNING_RATE, MOMENTUM, WEIGHT_DECAY = 0.001, 0.9, 0.0005


def model(network: Network) -> Any:
    """The network as a torch.nn.Sequential, without the softmax, which is the loss's; initial weights are He's."""
    nn = importlib.import_module("torch").nn
    modules = [module for layer in network.layers for module in _modules(nn, layer)]
    for module in modules:
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(module.weight)
    return nn.Sequential(*modules)


def _modules(nn: Any, layer: Layer) -> Iterator[Any]:
    if layer.is_fc:
        oc, *others = layer.weight_shape
        yield from (nn.Flatten(), nn.Linear(int(np.prod(others)), oc, bias=layer.bias))
    else:
        yield nn.Conv2d(layer.input[0], layer.channels, layer.kernel, layer.stride, layer.pad, bias=layer.bias)
    for step in layer.sfu:
        yield _module(nn, step)


def _module(nn: Any, step: SfuStep) -> Any:
    of = step.operation
    if isinstance(of, Relu):
        return nn.ReLU(inplace=True)
    if isinstance(of, Dropout):
        return nn.Dropout(of.rate)
    if isinstance(of, Lrn):
        return nn.LocalResponseNorm(of.size, of.alpha, of.beta, of.k)
    if isinstance(of, Pool):
        pool = nn.MaxPool2d if of.type == "max-pool" else nn.AvgPool2d
        return pool(of.kernel, of.step, of.pad)
    raise NotImplementedError(f"PyTorch's side has no module for {of}")


def train(name: str, batch: int, threads: int, steps: int | None = None) -> None:
    """Train for so many mini-batches, or without end; print a line for each."""
    torch = importlib.import_module("torch")
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    network = model(load_network(name))
    optimiser = torch.optim.SGD(network.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    data = load("shapes")
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
