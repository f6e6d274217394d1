"""One iteration: a mini-batch of a network on a cluster, its costs under any method, and the metrics of its outcome."""

from __future__ import annotations

import dataclasses
import math

from ...kernels.number import FP32
from ..cluster import Cluster
from ..common import gbps
from ..network import Layer, Network


def weight_bytes(layer: Layer) -> int:
    """Return the bytes of a layer's weights."""
    return FP32.bytes_of(layer.weights)


def parameter_bytes(layer: Layer) -> int:
    """Return the bytes of a layer's weights, biases, and normalisation parameters."""
    return FP32.bytes_of(layer.parameters)


def input_bytes(layer: Layer) -> int:
    """Return the bytes of one sample's input activations."""
    return FP32.bytes_of(math.prod(layer.input))


def output_bytes(layer: Layer) -> int:
    """Return the bytes of one sample's outputs after pooling, without maps that the SFU joins from other branches."""
    return FP32.bytes_of(min(math.prod(layer.output), math.prod(layer.feeds)))


@dataclasses.dataclass(frozen=True)
class Workload:
    """A mini-batch of `batch` samples of a network, on boards and links of a cluster."""

    network: Network
    cluster: Cluster
    batch: int

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the mini-batch in FP, EB and PG; errors of the images are not computed."""
        return self.batch * sum(layer.training_macs for layer in self.network.layers)

    @property
    def parameter_bytes(self) -> int:
        """Bytes of the parameters of all layers."""
        return sum(map(parameter_bytes, self.network.layers))

    @property
    def activation_bytes(self) -> int:
        """Bytes of one sample's maps that layers read, which PG needs again after FP; each map once."""
        return FP32.bytes_of(sum(math.prod(t.shape) for t in {layer.reads for layer in self.network.layers}))

    def utilisation(self, devices: int, iteration_ps: int) -> float:
        """Return RealFlops / MaxFlops (FPDeep, section 3.3): useful work over the capacity of all multipliers."""
        boards = map(self.cluster.board, range(devices))
        return self.macs / sum(board.multipliers * iteration_ps / board.period_ps for board in boards)

    def transfer_ps(self, count: int, hops: int = 1) -> int:
        """Return the time in ps of `count` bytes at a link's full bandwidth, plus the latency of `hops` links."""
        link = self.cluster.link
        return link.transfer_ps(count) + hops * link.latency_ps


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The metrics of one method on `devices` devices.

    - FLOP utilisation: useful multiply-accumulates over those that all multipliers could do in the iteration
    - storage: "model parameters and temporal activations must be stored": parameters, their gradients, and the inputs
      of layers that wait for PG, in bytes for each device
    - communication footprint: "the entire communication data throughput of one mini-batch SGD iteration": bytes that
      devices send each other
    - communication bandwidth: "the communication footprint divided by the time of one mini-batch SGD iteration"
    """

    devices: int
    iteration_ps: int
    flop_utilisation: float
    storage_bytes: tuple[int, ...]
    footprint_bytes: int

    @property
    def total_storage_bytes(self) -> int:
        """Bytes stored on all devices."""
        return sum(self.storage_bytes)

    @property
    def largest_storage_bytes(self) -> int:
        """Bytes stored on the device that needs most."""
        return max(self.storage_bytes)

    @property
    def bandwidth_gbps(self) -> float:
        """The average over the iteration, summed over all devices."""
        return gbps(self.footprint_bytes, self.iteration_ps)
