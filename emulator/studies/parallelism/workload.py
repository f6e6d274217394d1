"""One iteration: a mini-batch of a network on a cluster, and what it costs whatever the method."""

from __future__ import annotations

import dataclasses
import math

from ...cluster.board import Cluster
from ...mapping.traffic import VALUE_BYTES
from ...network.layers import Layer, Network


def weight_bytes(layer: Layer) -> int:
    """Weights of a layer."""
    return VALUE_BYTES * layer.weights


def parameter_bytes(layer: Layer) -> int:
    """Weights, biases, and what normalisations of a layer learn."""
    return VALUE_BYTES * layer.parameters


def input_bytes(layer: Layer) -> int:
    """The input activations of one sample."""
    return VALUE_BYTES * math.prod(layer.input)


def output_bytes(layer: Layer) -> int:
    """One sample's outputs, after pooling; without what the SFU joins to them from other branches."""
    return VALUE_BYTES * min(math.prod(layer.output), math.prod(layer.feeds))


@dataclasses.dataclass(frozen=True)
class Workload:
    """A mini-batch of `batch` samples of a network, on boards and links of a cluster."""

    network: Network
    cluster: Cluster
    batch: int

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the mini-batch in FP, EB and PG; of the images, nobody needs errors."""
        return self.batch * sum((3 if layer.needs_errors else 2) * layer.macs for layer in self.network.layers)

    @property
    def parameter_bytes(self) -> int:
        """Of all layers."""
        return sum(map(parameter_bytes, self.network.layers))

    @property
    def activation_bytes(self) -> int:
        """All maps of one sample that layers convolve, which PG needs again after FP; each once."""
        return VALUE_BYTES * sum(math.prod(t.shape) for t in {layer.reads for layer in self.network.layers})

    def utilisation(self, devices: int, iteration_ps: int) -> float:
        """RealFlops / MaxFlops (FPDeep, section 3.3): what is computed over what all multipliers could."""
        boards = map(self.cluster.board, range(devices))
        return self.macs / sum(board.multipliers * iteration_ps / board.period_ps for board in boards)

    def transfer_ps(self, count: int, hops: int = 1) -> int:
        """The time of so many bytes through a link at full bandwidth, and over `hops` links in a row."""
        link = self.cluster.link
        return -(-count * 8_000_000 // link.bandwidth_mbps) + hops * link.latency_ps
