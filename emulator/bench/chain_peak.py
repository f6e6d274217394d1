"""The multiply-adds of training one of our networks and nothing else, at the peak of all cores, for `bench chain`.

    python -m emuchain.emulator.bench.chain_peak NETWORK BATCH PROCESSES

A program that runs until it is ended: the operations of FP, EB and PG of a mini-batch, in equal parts in each process,
then a line as from training. No training on these cores is faster, as cores have at that moment what the others leave.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import sys

from ...kernels.llvm import FLOP_OF_ROUND, multiply_add
from ..data import describe_data
from ..network import Network, load_network


def flop_of_sample(network: Network) -> int:
    """Return the floating-point operations of FP, EB and PG of a sample."""
    return 2 * sum(layer.training_macs for layer in network.layers)


def work(name: str, batch: int, processes: int, steps: int | None = None) -> None:
    """Run `steps` mini-batches' multiply-adds, or without end if None; print a line for each."""
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
    work(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
