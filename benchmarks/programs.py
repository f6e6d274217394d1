"""Programs that take turns with the chain in `bench chain`, each of which runs until it is ended.

    python -m emuchain.benchmarks.programs torch NETWORK BATCH THREADS
    python -m emuchain.benchmarks.programs peak NETWORK BATCH PROCESSES

`torch` is plain PyTorch training of one of our networks. Layers, data set, loss and optimiser are
the chain's; modules are PyTorch's own, with contiguous NCHW float32 arrays.

`peak` is the multiply-adds of that training and nothing else, at the peak of all cores: the
operations of FP, EB and PG of a mini-batch, in equal parts in each process, then a line as from
training. No training on these cores is faster, as cores have at that moment what the others leave.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import multiprocessing
import operator
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..emulator.data import describe_data, load_data
from ..emulator.network import Layer, Network, load_network

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
    """A module, and the numbers of the tensors that it reads and makes; a join has its function
    instead.
    """

    module: Any
    reads: tuple[int, ...]
    makes: int


def _steps(nn: Any, layer: Layer) -> Iterator[_Step]:
    modules = layer.operation.torch(nn, layer.input)
    yield _Step(
        modules[0] if len(modules) == 1 else nn.Sequential(*modules),
        (layer.reads.number,),
        layer.makes.number,
    )
    for step in layer.sfu:
        reads = tuple(tensor.number for tensor in step.reads)
        yield _Step(
            _JOINS.get(step.operation.type) or step.operation.torch(nn, step.input),
            reads,
            step.makes.number,
        )


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
            self.steps = nn.ModuleList(
                step.module for step in steps if step.module not in _JOINS.values()
            )

        def forward(self, images: Any) -> Any:
            known = {0: images}
            for place, step in enumerate(steps):
                made = step.module(*(known[number] for number in step.reads))
                known = {number: maps for number, maps in known.items() if last_use[number] > place}
                known[step.makes] = made
            return made

    return Graph()


def train_with_torch(name: str, batch: int, threads: int, steps: int | None = None) -> None:
    """Train for `steps` mini-batches, or without end if None; print a line for each."""
    torch = importlib.import_module("torch")
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    network = model(load_network(name))
    optimiser = torch.optim.SGD(
        network.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY
    )
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


def flop_of_sample(network: Network) -> int:
    """Return the floating-point operations of FP, EB and PG of a sample."""
    return 2 * sum(layer.training_macs for layer in network.layers)


def multiply_as_training(name: str, batch: int, processes: int, steps: int | None = None) -> None:
    """Run `steps` mini-batches' multiply-adds, or without end if None; print a line for each."""
    from ..kernels.llvm import (
        FLOP_OF_ROUND,
        multiply_add,
    )  # here, as PyTorch's memory is measured without them

    samples = describe_data("shapes")[0]
    rounds = max(1, flop_of_sample(load_network(name)) * batch // (processes * FLOP_OF_ROUND))
    multiply_add(1)  # compiled here, once for all
    with multiprocessing.get_context("fork").Pool(processes, _pin) as pool:
        for step in itertools.count() if steps is None else range(steps):
            pool.map(multiply_add, [rounds] * processes, chunksize=1)
            print(f"{(step + 1) * batch}/{samples} samples", flush=True)


def _pin() -> None:
    """Stay on a core of its own, and leave it to the program to end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    cores = sorted(os.sched_getaffinity(0))
    number = multiprocessing.current_process()._identity[0] - 1
    os.sched_setaffinity(0, {cores[number % len(cores)]})


if __name__ == "__main__":
    program = {"torch": train_with_torch, "peak": multiply_as_training}[sys.argv[1]]
    program(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
