"""Evidence for measures: INCEPTIONN's networks, their nodes' times in Table II, and exchange times
on its cluster.

All measures use one set of constants: the cluster `titan-xp-10gbe`. A node's own work, on a GPU, is
not emulated:
forward pass, backward pass, copy and update are Table II's. Communication and gradient sum are
calculated.

What the networks are (section VII-A), and the mathematics of distributed training (II-A), are
measured here, too.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Literal

import numpy as np

from ...comm import Interconnect
from ...comm.exchange import aggregator_ps, bytes_at_ratio, ring_ps
from ...emulator.network import Network, load_network
from ...kernels.number import FP32
from ..claim import Measured, choice, figures
from ..constants import chosen, cluster_of, kept

ROUNDS = choice("inceptionn", "aggregator.rounds")
NETWORKS = ("alexnet", "hdc", "resnet50", "vgg16")
"""The paper's networks."""
ZOO = {"alexnet": "alexnet-grouped"}
"""The network of the zoo for a name, if it has another name there: its 233 MB are AlexNet's with
two channel groups.
"""
WORKERS = 4
"""Section VII-C; the aggregator, if any, is an additional node."""
ITERATIONS = 100
"""The number of iterations of Table II's seconds."""
HDC_BYTES = 2_500_000
"""Section VII-A. Five layers have 4.6 MB, but the paper timed a gradient of this size."""

Exchange = Literal["WA", "WA+C", "INC", "INC+C"]
EXCHANGES: tuple[Exchange, ...] = ("WA", "WA+C", "INC", "INC+C")
"""Fig. 12: worker-aggregator and ring, each without and with compression, at a bound of 2^-10."""

RATIOS = figures("inceptionn", "ratios")
"""Compression ratios of Table III at 2^-10; three of the networks would have to be trained on
ImageNet.
"""


@dataclasses.dataclass(frozen=True)
class Node:
    """A node's own work in Table II, in seconds for 100 iterations."""

    forward: float
    backward: float
    gpu_copy: float
    update: float

    @property
    def total(self) -> float:
        """The sum of all steps."""
        return self.forward + self.backward + self.gpu_copy + self.update


NODES = {name: Node(**seconds) for name, seconds in figures("inceptionn", "nodes").items()}
TRAINED = figures("inceptionn", "trained")
"""Table I and section VII-A."""


@functools.cache
def network(name: str) -> Network:
    """Return a network of the paper."""
    return load_network(ZOO.get(name, name))


@kept
def cluster_network() -> Interconnect:
    """Return the cluster's 10 Gb Ethernet."""
    return cluster_of("titan-xp-10gbe").interconnect


def values(name: str) -> int:
    """Return the number of values in a gradient."""
    return FP32.values_in(HDC_BYTES) if name == "hdc" else network(name).parameters


def exchange_ps(
    interconnect: Interconnect,
    exchange: Exchange,
    count: int,
    workers: int = WORKERS,
    ratio: float = 1,
) -> int:
    """Return the time in ps of one exchange of gradients of `count` values, all ready at once."""
    ready, compresses = np.zeros(workers, np.int64), exchange.endswith("+C")
    if exchange.startswith("INC"):
        compressed = functools.partial(bytes_at_ratio, ratio=ratio) if compresses else None
        return int(ring_ps(interconnect, ready, count, compressed).max())
    made = bytes_at_ratio(np.full(workers, FP32.bytes_of(count)), ratio) if compresses else None
    return int(aggregator_ps(interconnect, ready, count, made).max()) - _rounds_less_ps(
        interconnect, count, workers
    )


def _rounds_less_ps(interconnect: Interconnect, count: int, workers: int) -> int:
    """Return by how much less time the weights take in as many rounds as the choice in force
    has.
    """
    if chosen(ROUNDS) == "of-tree":
        return 0
    rounds = math.ceil(math.log2(workers + 1)) - math.log2(workers)
    return round(
        rounds * (interconnect.latency_ps + interconnect.transfer_ps(FP32.bytes_of(count)))
    )


@dataclasses.dataclass(frozen=True)
class Times:
    """Seconds for 100 iterations, divided as in Table II."""

    node: float
    gradient_sum: float
    communicate: float

    @property
    def total(self) -> float:
        """The sum of all parts."""
        return self.node + self.gradient_sum + self.communicate

    @property
    def local(self) -> float:
        """What is no communication."""
        return self.total - self.communicate


@kept
def times(
    name: str, exchange: Exchange, workers: int = WORKERS, ratio: float | None = None
) -> Times:
    """Return a network's training time; the gradient sum is the time by which it prolongs the
    exchange.
    """
    ratio = RATIOS[name] if ratio is None else ratio
    without = dataclasses.replace(cluster_network(), sum_ps_per_kbyte=0)
    both, communicate = (
        exchange_ps(interconnect, exchange, values(name), workers, ratio) * 1e-12 * ITERATIONS
        for interconnect in (cluster_network(), without)
    )
    return Times(NODES[name].total, both - communicate, communicate)


def less_percent(ours: float, theirs: float) -> float:
    """Return by how much `ours` is less than `theirs`, in percent."""
    return 100 * (1 - ours / theirs)


def layers(name: str) -> Measured:
    """Count convolutions and fully connected layers, without the convolutions of shortcuts."""
    held = network(name).layers
    shortcuts = sum(layer.name.startswith("shortcut") for layer in held)
    fc = sum(not layer.convolves for layer in held)
    return Measured(
        [len(held) - fc - shortcuts, fc],
        f"and {shortcuts} convolutions of shortcuts" if shortcuts else "",
    )


def hdc() -> Measured:
    """Measure HDC's layers, and the widest of them."""
    held = network("hdc").layers
    return Measured([len(held), max(layer.channels for layer in held)], "784-500-500-500-500-10")


def update() -> Measured:
    """Compare the training kernel with w - eta g: the largest difference over the largest value."""
    from ...kernels.optimizers import sgd

    random = np.random.default_rng(1)
    weights, gradient = random.standard_normal((2, 64, 32)).astype(np.float32)
    value = weights.copy()
    sgd.update(
        value,
        gradient,
        np.zeros_like(value),
        count=1,
        learning_rate=0.125,
        momentum=0.0,
        weight_decay=0.0,
    )
    formula = weights.astype(np.float64) - 0.125 * gradient.astype(np.float64)
    return Measured(
        float(np.abs(value - formula).max() / np.abs(formula).max()),
        "learning rate 1/8, no momentum",
    )


def sum_of_workers() -> Measured:
    """Compare the gradient of a mini-batch with the sum of the gradients of the workers' parts."""
    from ...kernels import conv

    random = np.random.default_rng(1)
    maps = random.standard_normal((2 * WORKERS, 3, 7, 6)).astype(np.float32)
    errors = random.standard_normal((2 * WORKERS, 4, 7, 6)).astype(np.float32)

    def gradient(part: slice) -> np.ndarray:
        operands = (np.ascontiguousarray(maps[part]), np.ascontiguousarray(errors[part]))
        return conv.gradient(*operands, (4, 3, 3, 3), stride=(1, 1), pad=(1, 1)).astype(np.float64)

    whole = gradient(slice(None))
    parts = sum(gradient(slice(2 * worker, 2 * worker + 2)) for worker in range(WORKERS))
    return Measured(
        float(np.abs(whole - parts).max() / np.abs(whole).max()),
        "a convolution, 4 workers of 2 samples",
    )
