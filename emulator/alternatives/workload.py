"""One iteration: a mini-batch of a network on a cluster, and what it costs whatever the method."""

from __future__ import annotations

import dataclasses
import math

from ..boards import Cluster
from ..layers import Layer, Network
from ..mapping import VALUE_BYTES


def parameter_bytes(layer: Layer) -> int:
    """Weights and biases of a layer."""
    return VALUE_BYTES * (math.prod(layer.weight_shape) + layer.bias * layer.channels)


def input_bytes(layer: Layer) -> int:
    """The input activations of one sample, which PG needs again after FP."""
    return VALUE_BYTES * math.prod(layer.input)


def output_bytes(layer: Layer) -> int:
    """What one sample's layer gives to the next, after the SFU."""
    return VALUE_BYTES * math.prod(layer.feeds)


@dataclasses.dataclass(frozen=True)
class Workload:
    """A mini-batch of `batch` samples of a network, on boards and links of a cluster."""

    network: Network
    cluster: Cluster
    batch: int

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the mini-batch in FP, EB and PG; the first layer has no EB."""
        return self.batch * sum((3 if layer.index > 0 else 2) * layer.macs for layer in self.network.layers)

    def utilisation(self, devices: int, iteration_ps: int) -> float:
        """RealFlops / MaxFlops (FPDeep, section 3.3): what is computed over what all multipliers could."""
        boards = map(self.cluster.board, range(devices))
        return self.macs / sum(board.dsp * iteration_ps / board.period_ps for board in boards)

    def transfer_ps(self, count: int, hops: int = 1) -> int:
        """The time of so many bytes through a link at full bandwidth, and over `hops` links in a row."""
        link = self.cluster.link
        return -(-count * 8_000_000 // link.bandwidth_mbps) + hops * link.latency_ps
