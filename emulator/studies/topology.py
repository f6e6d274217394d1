"""1D against 2D: the same mapping with links between neighbours only, or between all devices that
exchange data.

FPDeep, section 4.2 and Figs. 9 and 10. A board has a fixed number of ports; a device divides them
evenly among its links, and a link gets the smaller share of its two ends.

      1D                      2D, if layer A is on devices 0 and 1, layer B on 2 and 3
      0 --- 1 --- 2 --- 3      0 --> 1   sums of A;   1 --> 2, 1 --> 3   inputs of B;   2 --> 3   sums of B

- 1D: links between neighbours in the chain. Data for devices further on are relayed, and sums
  formed on the way.
- 2D: "the reduction operation of each DNN layer is centralized", here on the device that holds the
  layer's last slice, where complete outputs are in the chain too. Each device of the layer sends
  its partial outputs there and receives the output errors; that device sends each device of the
  next layer its input channels and receives their errors. A tensor that bypasses a layer goes from
  the device where it is complete to the device that needs it.

Beside them, a ring, a torus and a switch carry the data paths of the chain on their own routes
(`timing/routes.py`). A board of a torus divides its ports among up to four links; all its ports
lead to the switch.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
from collections import Counter
from collections.abc import Mapping as Map
from collections.abc import Sequence

from ...comm import Chain, topologies
from ...kernels.number import FP32
from ..cluster import Cluster
from ..common import InputError
from ..mapping import Mapping, streams
from ..network import Layer, Network, Tensor
from ..timing import Routes, Timing, find_bottleneck
from ..view import log_ticks, nested_widths, new_figure, save_figure, whole_ticks

Traffic = Map[tuple[int, int], int]
"""Bytes of one sample, by sender and receiver."""


@dataclasses.dataclass(frozen=True)
class Ports:
    """The board-to-board ports of a device, and the bandwidth of each in each direction."""

    count: int
    gbps: float


@dataclasses.dataclass(frozen=True)
class Topology:
    """The links of a mapping: traffic, the ports of a board, and the rate of the engines alone, in
    images a second.

    A link may have no traffic. Where the devices are on a switch, it has their number, and a port
    for each of theirs.
    """

    devices: int
    traffic: Traffic
    ports: Ports
    compute_images_per_s: float

    def degree(self, device: int) -> int:
        """Return the number of devices to which `device` has links."""
        return len({other for pair in self.traffic if device in pair for other in pair} - {device})

    def link_ports(self, one: int, other: int) -> int:
        """Return the number of ports of the link between two devices."""
        return self.ports.count // max(
            self.degree(device) for device in (one, other) if device < self.devices
        )

    def link_images_per_s(self, sender: int, receiver: int) -> float:
        """Return the samples a second that a link carries in this direction; 0 if a board has more
        links than ports.
        """
        bits = 8 * self.traffic[sender, receiver]
        if not bits:
            return math.inf
        return 1e9 * self.ports.gbps * self.link_ports(sender, receiver) / bits

    @property
    def bottleneck(self) -> tuple[int, int] | None:
        """Sender and receiver of the slowest direction of a link; None on one device."""
        return min(self.traffic, key=lambda pair: self.link_images_per_s(*pair), default=None)

    @property
    def worst_link_images_per_s(self) -> float:
        """Rate of the slowest link; infinite on one device."""
        return self.link_images_per_s(*self.bottleneck) if self.bottleneck else float("inf")

    @property
    def images_per_s(self) -> float:
        """Rate of the slower of engines and worst link."""
        return min(self.compute_images_per_s, self.worst_link_images_per_s)


def chain_topology(mapping: Mapping, cluster: Cluster, ports: Ports) -> Topology:
    """Return the 1D topology: links for the data paths of the chain.

    Raises:
        InputError: a board has too few multipliers.
    """
    traffic: Counter[tuple[int, int]] = Counter()
    for link in range(len(mapping.devices) - 1):
        for stream in streams(mapping, link, cluster.link.share, cluster.precision):
            traffic[(link, link + 1) if stream.path.is_forward else (link + 1, link)] += (
                stream.sample_bytes
            )
    return Topology(len(mapping.devices), traffic, ports, _compute_images_per_s(mapping, cluster))


def other_topologies(mapping: Mapping, cluster: Cluster, ports: Ports) -> dict[str, Topology]:
    """Return a ring, a torus as square as it can be, and a switch, by name: links for the data
    paths of the chain.

    Raises:
        InputError: a board has too few multipliers.
    """
    count, rate = len(mapping.devices), _compute_images_per_s(mapping, cluster)
    carried = tuple(
        streams(mapping, link, cluster.link.share, cluster.precision) for link in range(count - 1)
    )
    kinds = {
        name: kind.among(count)
        for name, kind in topologies().items()
        if kind.joins_boards and not isinstance(kind, Chain)
    }
    return {
        name: Topology(
            count, _routed(Routes(cluster, kind, mapping.devices, (), carried)), ports, rate
        )
        for name, kind in kinds.items()
    }


def _routed(routes: Routes) -> Counter[tuple[int, int]]:
    """Return the traffic of streams on their routes; a switch has the number of the devices."""
    devices, topology = range(len(routes.devices)), routes.topology
    traffic: Counter[tuple[int, int]] = Counter()
    if not topology.has_ports:
        traffic.update(
            {hop: 0 for hop in itertools.permutations(devices, 2) if topology.hops(*hop) == 1}
        )
    for sender, receiver in routes.carried:
        count = sum(stream.sample_bytes for stream in routes.streams((sender, receiver)))
        ends = [(sender, receiver)]
        if topology.has_ports:
            ends = [(sender, len(devices)), (len(devices), receiver)]
        for end in ends:
            traffic[end] += count
    return traffic


def direct_topology(mapping: Mapping, cluster: Cluster, ports: Ports) -> Topology:
    """Return the 2D topology: links between all devices that exchange data.

    Raises:
        InputError: a board has too few multipliers.
    """
    traffic: Counter[tuple[int, int]] = Counter()
    homes: dict[int, int] = {}  # by tensor number, the device where it is complete

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
            inputs = FP32.bytes_of(len(part.in_channels) * math.prod(layer.input[1:]))
            outputs = FP32.bytes_of(len(part.out_channels) * math.prod(layer.output[1:]))
            exchange(homes.get(layer.reads.number, 0), device, inputs, layer.needs_errors)
            exchange(device, home, outputs, True)
        outcomes = (layer.makes, *(step.makes for step in layer.sfu))
        made = {tensor.number for tensor in outcomes}
        for tensor in {
            tensor for step in layer.sfu for tensor in step.reads if tensor.number not in made
        }:
            count = FP32.bytes_of(math.prod(tensor.shape))
            exchange(homes.get(tensor.number, 0), home, count, tensor.needs_errors)
        homes |= dict.fromkeys(made, home)
    return Topology(len(mapping.devices), traffic, ports, _compute_images_per_s(mapping, cluster))


def _compute_images_per_s(mapping: Mapping, cluster: Cluster) -> float:
    """Return the rate of the slowest engine in images a second."""
    return 1e12 / find_bottleneck(Timing.of(mapping, cluster)).times_ps["engines"]


def draw_topologies(
    title: str,
    pairs: Sequence[tuple[Topology, Topology]],
    path: str | os.PathLike[str],
    noun: str = "image",
    flag: str = "--plot",
) -> None:
    """Draw Fig. 10: the rates of the worst link in 1D and in 2D, and of the slowest engine, over
    the number of devices.

    Raises:
        InputError: matplotlib is not installed, or the file cannot be written.
    """
    figure = new_figure(6, 3.8, flag)
    axes = figure.subplots()
    devices = [one.devices for one, _ in pairs]
    *widths, narrow = nested_widths(3)
    for index, (name, style) in enumerate((("1D", "o-"), ("2D", "s--"))):
        rates, width = [pair[index].worst_link_images_per_s for pair in pairs], widths[index]
        axes.plot(
            devices,
            rates,
            style,
            label=f"worst link, {name}",
            linewidth=width,
            markersize=3 + width,
        )
    axes.plot(
        devices,
        [one.compute_images_per_s for one, _ in pairs],
        "k:",
        label="slowest engine",
        linewidth=narrow,
    )
    axes.set(xlabel="devices", ylabel=f"{noun}s/s", yscale="log")
    whole_ticks(axes.xaxis)
    log_ticks(axes.yaxis)
    axes.legend()
    figure.suptitle(title)
    save_figure(figure, path, flag)


def section(network: Network, first: str, last: str) -> Network:
    """Return the layers from `first` to `last` as a network; the map that enters them replaces the
    images.

    Raises:
        InputError: the network has no such layers in this order, or a shortcut or branch crosses an
            end.
    """
    where = f"`layers` = '{first}:{last}'"
    names = [layer.name for layer in network.layers]
    for name in (first, last):
        if name not in names:
            raise InputError(f"{where}: {network.name} has no {name}; it has {', '.join(names)}")
    begin, end = names.index(first), names.index(last)
    if begin > end:
        raise InputError(f"{where}: {first} comes after {last} in {network.name}")
    inside = network.layers[begin : end + 1]
    for name, crossing in ((first, inside[0].takes), (last, inside[-1].hands_on)):
        if len(crossing) > 1:
            raise InputError(
                f"{where}: more than one map passes at {name}; begin and end where no branch is"
                " open"
            )
    entry = inside[0].reads
    layers = tuple(_moved(layer, index, entry) for index, layer in enumerate(inside))
    return dataclasses.replace(
        network, name=f"{network.name} {first}:{last}", input=entry.shape, layers=layers
    )


def _moved(layer: Layer, index: int, entry: Tensor) -> Layer:
    """Return the layer at `index` of the section, whose entry becomes tensor 0."""

    def renamed(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(Tensor(0, tensor.shape) if tensor == entry else tensor for tensor in tensors)

    return dataclasses.replace(
        layer,
        index=index,
        reads=renamed((layer.reads,))[0],
        bypass=renamed(layer.bypass),
        hands_on=renamed(layer.hands_on),
        sfu=tuple(dataclasses.replace(step, reads=renamed(step.reads)) for step in layer.sfu),
    )
