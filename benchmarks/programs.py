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

import importlib
import itertools
import multiprocessing
import os
import signal
import sys
from typing import Any

import numpy as np

from ..emulator.common import InputError, plural
from ..emulator.data import describe_data, load_data
from ..emulator.network import Network, load_network

LEARNING_RATE, MOMENTUM, WEIGHT_DECAY = 0.001, 0.9, 0.0005


def model(network: Network) -> Any:
    """Return the network as a module with He's initial weights; the softmax is part of the loss."""
    torch = importlib.import_module("torch")
    made = importlib.import_module("emuchain.emulator.network.pytorch.module").module_of(network)
    for module in made.modules():
        if isinstance(module, (torch.nn.Conv2d, torch.nn.Linear)):
            torch.nn.init.kaiming_normal_(module.weight)
        if isinstance(module, torch.nn.ReLU):
            module.inplace = True  # as one writes it: PyTorch then has the least memory
    return made


def data_for(network: Network) -> str:
    """Return the name of the built-in data set that a network takes: of characters or of images.

    Raises:
        InputError: it takes neither.
    """
    name = "text" if network.takes_symbols else "shapes"
    _, _, takes, classes, *_ = describe_data(name)
    if (network.input, network.classes) != (takes, classes):
        given, needed = ("x".join(map(str, shape)) for shape in (network.input, takes))
        raise InputError(
            f"`network` = {network.name!r}: takes {given} in {plural(network.classes, 'class')};"
            f" `{name}`, which the benchmark trains on, has {needed} in {classes}"
        )
    return name


def train_with_torch(name: str, batch: int, threads: int, steps: int | None = None) -> None:
    """Train for `steps` mini-batches, or without end if None; print a line for each."""
    torch = importlib.import_module("torch")
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    described = load_network(name)
    network = model(described)
    optimiser = torch.optim.SGD(
        network.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY
    )
    data = load_data(data_for(described))
    normalisation = None if described.takes_symbols else data.normalisation()
    random = np.random.default_rng(1)
    whole = data.n_train // batch
    for step in itertools.count() if steps is None else range(steps):
        if step % whole == 0:
            order = random.permutation(data.n_train)
        chosen = order[step % whole * batch :][:batch]
        taken = data.train_images[chosen]
        if normalisation is None:
            taken = taken.reshape(len(taken), -1)  # symbols
        else:
            taken = normalisation.apply(taken)
        labels = torch.from_numpy(data.train_labels[chosen])
        optimiser.zero_grad()
        logits = network(torch.from_numpy(taken)).flatten(0, -2)
        loss = torch.nn.functional.cross_entropy(logits, labels.flatten())
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

    network = load_network(name)
    samples = describe_data(data_for(network))[0]
    rounds = max(1, flop_of_sample(network) * batch // (processes * FLOP_OF_ROUND))
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
