"""1D against 2D: the same mapping with links between neighbours only, or between all that exchange data.

FPDeep, section 4.2 and Figs. 9 and 10. A board has so many ports; a device divides them evenly among its links, and a
link gets as many as the end that can spare fewer.

- 1D: neighbours in the chain. What is meant for devices further on is relayed, and sums are made on the way.
- 2D: "the reduction operation of each DNN layer is centralized", here on the device that holds the layer's last slice,
  where complete outputs are in the chain too. Each device of the layer sends it its partial outputs, and takes the
  output errors from it; it sends each device of the next layer its input channels, and takes their errors. What passes
  by a layer goes from where it is complete to where it is needed.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping as Map

from ..cluster.board import Cluster
from ..mapping.slices import Mapping
from ..mapping.traffic import VALUE_BYTES, streams
from ..timing.bottleneck import find_bottleneck
from ..timing.timing import Timing

Traffic = Map[tuple[int, int], int]
"""Bytes of one sample from one device to another."""


@dataclasses.dataclass(frozen=True)
class Ports:
    """The board-to-board ports of a device, and what each carries in each direction."""

    count: int
    gbps: float


@dataclasses.dataclass(frozen=True)
class Topology:
    """The links of a mapping: traffic, the ports of a board, and the rate of the engines alone, in images a second."""

    devices: int
    traffic: Traffic
    ports: Ports
    compute_images_per_s: float

    def degree(self, device: int) -> int:
        """To how many devices a device has links."""
        return len({other for pair in self.traffic if device in pair for other in pair} - {device})

    def link_ports(self, one: int, other: int) -> int:
        """The ports of the link between two devices."""
        return self.ports.count // max(self.degree(one), self.degree(other))

    def link_images_per_s(self, sender: int, receiver: int) -> float:
        """How many samples a second go over a link in this direction; none where a board has more links than ports."""
        bits = 8 * self.traffic[sender, receiver]
        return 1e9 * self.ports.gbps * self.link_ports(sender, receiver) / bits

    @property
    def bottleneck(self) -> tuple[int, int] | None:
        """Sender and receiver of the slowest direction of a link; none on one device."""
        return min(self.traffic, key=lambda pair: self.link_images_per_s(*pair), default=None)

    @property
    def worst_link_images_per_s(self) -> float:
        """What the slowest link lets through."""
        return self.link_images_per_s(*self.bottleneck) if self.bottleneck else float("inf")

    @property
    def images_per_s(self) -> float:
        """The slower one of engines and worst link."""
        return min(self.compute_images_per_s, self.worst_link_images_per_s)


def chain_topology(mapping: Mapping, cluster: Cluster, ports: Ports) -> Topology:
    """1D: the data paths of the chain.

    Raises:
        InputError: a board has too few multipliers.
    """
    traffic: Counter[tuple[int, int]] = Counter()
    for link in range(len(mapping.devices) - 1):
        for stream in streams(mapping, link):
            traffic[(link, link + 1) if stream.path.is_forward else (link + 1, link)] += stream.sample_bytes
    return Topology(len(mapping.devices), traffic, ports, _compute_images_per_s(mapping, cluster))


def direct_topology(mapping: Mapping, cluster: Cluster, ports: Ports) -> Topology:
    """2D: links wherever data go.

    Raises:
        InputError: a board has too few multipliers.
    """
    traffic: Counter[tuple[int, int]] = Counter()
    homes: dict[int, int] = {}  # of tensors: where they are complete

    def exchange(one: int, other: int, count: int, with_errors: bool) -> None:
        if one != other:
            traffic[one, other] += count
        if one != other and with_errors:
            traffic[other, one] += count

    for layer in mapping.network.layers:
        held = [(device, part) for device, slices in enumerate(mapping.devices) for part in slices]
        held = [(device, part) for device, part in held if part.layer.index == layer.index]
        home = held[-1][0]
        for device, part in held:
            inputs = VALUE_BYTES * len(part.in_channels) * math.prod(layer.input[1:])
            outputs = VALUE_BYTES * len(part.out_channels) * math.prod(layer.output[1:])
            exchange(homes.get(layer.reads.number, 0), device, inputs, layer.needs_errors)
            exchange(device, home, outputs, True)
        made = {tensor.number for tensor in (layer.makes, *(step.makes for step in layer.sfu))}
        for tensor in {tensor for step in layer.sfu for tensor in step.reads if tensor.number not in made}:
            exchange(homes.get(tensor.number, 0), home, VALUE_BYTES * math.prod(tensor.shape), not tensor.is_images)
        homes |= dict.fromkeys(made, home)
    return Topology(len(mapping.devices), traffic, ports, _compute_images_per_s(mapping, cluster))


def _compute_images_per_s(mapping: Mapping, cluster: Cluster) -> float:
    """The rate of the slowest engine."""
    return 1e12 / find_bottleneck(Timing.of(mapping, cluster)).engines_ps
