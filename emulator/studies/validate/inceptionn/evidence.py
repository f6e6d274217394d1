"""What measures look at: INCEPTIONN's networks, what Table II says of their nodes, and exchange times on its cluster.

One set of constants serves all: the cluster `titan-xp-10gbe`. A node's own work, on a GPU, is not emulated: forward
pass, backward pass, copy and update are Table II's. Communication and gradient sum are worked out.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Literal

import numpy as np

from .....comm.exchange.time import VALUE_BYTES, aggregator_ps, compressed_bytes, ring_messages, ring_ps
from .....comm.interconnect import Network
from ....cluster.load import load_cluster
from ....network import layers
from ....network.load import load_network

NETWORKS = ("alexnet", "hdc", "resnet50", "vgg16")
"""By the paper's names, which are the zoo's."""
WORKERS = 4
"""Section VII-C; beside them the aggregator, where there is one."""
ITERATIONS = 100
"""Table II's seconds are of so many."""
HDC_BYTES = 2_500_000
"""Section VII-A. Five layers have 4.6 MB, but what the paper timed had this size."""

Exchange = Literal["WA", "WA+C", "INC", "INC+C"]
EXCHANGES: tuple[Exchange, ...] = ("WA", "WA+C", "INC", "INC+C")
"""Fig. 12: worker-aggregator and ring, each without and with compression, at a bound of 2^-10."""

RATIOS = {"alexnet": 5.59, "hdc": 11.59, "resnet50": 9.11, "vgg16": 11.2}
"""Table III's, at 2^-10; three of the networks want ImageNet to be trained on."""


@dataclasses.dataclass(frozen=True)
class Node:
    """A node's own work in Table II, in seconds for 100 iterations."""

    forward: float
    backward: float
    gpu_copy: float
    update: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.forward + self.backward + self.gpu_copy + self.update


NODES = {
    "alexnet": Node(3.13, 16.22, 5.68, 13.67),
    "hdc": Node(0.08, 0.07, 0.0, 0.09),
    "resnet50": Node(2.63, 4.87, 2.24, 1.55),
    "vgg16": Node(35.25, 142.34, 12.09, 30.50),
}
"""VGG-16's forward pass is printed as 32.25; its 4.3 % and the column's total want 35.25."""

ITERATIONS_TRAINED = {"alexnet": 320_000, "hdc": 10_000, "resnet50": 600_000, "vgg16": 370_000}
NODE_BATCH = {"alexnet": 64, "hdc": 25, "resnet50": 16, "vgg16": 64}
TRAINING_IMAGES = {"alexnet": 1_281_167, "hdc": 60_000, "resnet50": 1_281_167, "vgg16": 1_281_167}
"""Table I and section VII-A."""


@functools.cache
def network(name: str) -> layers.Network:
    """One of the zoo."""
    return load_network(name)


@functools.cache
def cluster_network() -> Network:
    """The cluster's 10 Gb Ethernet."""
    return load_cluster("titan-xp-10gbe").network


def values(name: str) -> int:
    """The values of a gradient."""
    return HDC_BYTES // VALUE_BYTES if name == "hdc" else network(name).parameters


def exchange_ps(found: Network, exchange: Exchange, count: int, workers: int = WORKERS, ratio: float = 1) -> int:
    """The time of one exchange of gradients of so many values, all ready at once."""
    ready, compresses = np.zeros(workers, np.int64), exchange.endswith("+C")
    if exchange.startswith("INC"):
        made = compressed_bytes(ring_messages(count, workers), ratio) if compresses else None
        return int(ring_ps(found, ready, count, made).max())
    made = compressed_bytes(np.full(workers, VALUE_BYTES * count), ratio) if compresses else None
    return int(aggregator_ps(found, ready, count, made).max())


@dataclasses.dataclass(frozen=True)
class Times:
    """Seconds for 100 iterations, as Table II has them."""

    node: float
    gradient_sum: float
    communicate: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.node + self.gradient_sum + self.communicate


@functools.cache
def times(name: str, exchange: Exchange, workers: int = WORKERS, ratio: float | None = None) -> Times:
    """A network's training time; the gradient sum is what the exchange takes longer than without."""
    ratio = RATIOS[name] if ratio is None else ratio
    without = dataclasses.replace(cluster_network(), sum_ps_per_kbyte=0)
    both, communicate = (
        exchange_ps(found, exchange, values(name), workers, ratio) * 1e-12 * ITERATIONS
        for found in (cluster_network(), without)
    )
    return Times(NODES[name].total, both - communicate, communicate)


def less_percent(ours: float, theirs: float) -> float:
    """How much less, in percent."""
    return 100 * (1 - ours / theirs)
