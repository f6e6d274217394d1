"""The routes of a chain's streams over the links of a topology, and what each direction of a link carries.

A stream runs in *legs*, from a device that makes or takes what it carries to the next such device of the chain: paths 1
to 4 from slice to slice of a layer, a map that bypasses layers from where it is made to where it is taken, a block of
balanced parameters from where it is stored to where it is used. A leg takes the topology's route between its two ends.
In a chain these are the links of all devices between; elsewhere the route may have fewer.

Messages of the emulation always pass from device to device of the chain. So the clock of the n-th device of a leg
carries its rows over the n-th link of the route; where the route has fewer links, the other devices hand on times as
they come.

A direction of a link, or of a switch's port, carries all streams that are routed over it, and they share it as in a
chain. Through a switch a row takes the longer of its times at the sender's port and at the receiver's.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
from collections import Counter
from typing import NamedTuple

from ...comm import Topology
from ..cluster import Cluster, Link
from ..mapping import BalancedParameters, DataPath, Mapping, Stream, StreamKey, bytes_on_wire, row_ps

Hop = tuple[int, int]
"""A direction of a link: the board that sends and the one that receives."""
Wire = tuple[int | None, int | None]
"""What streams share: a hop, or a direction of a port, whose far end is None."""


def hop_name(hop: Hop) -> str:
    """Return the name of a direction of a link."""
    return f"link {hop[0]} -> {hop[1]}"


class Leg(NamedTuple):
    """The two ends of a part of a stream's way along the chain, `left` before `right`."""

    left: int
    right: int

    def hop(self, topology: Topology, link: int, *, forward: bool) -> Hop | None:
        """Return the link of the route that stands for that between devices `link` and `link + 1`, if there is one."""
        ends, place = (self, link - self.left) if forward else (self[::-1], self.right - link - 1)
        route = topology.route(*ends)
        return route[place] if place < len(route) else None


class Routed(NamedTuple):
    """A stream on a hop, and the device whose clock sends it there."""

    device: int
    stream: Stream


@dataclasses.dataclass(frozen=True)
class Routes:
    """The routes of the streams on the `links` of a chain."""

    cluster: Cluster
    topology: Topology
    mapping: Mapping
    blocks: tuple[BalancedParameters, ...]
    links: tuple[tuple[Stream, ...], ...]

    def hop(self, link: int, key: StreamKey) -> Hop | None:
        """Return over which link the stream between devices `link` and `link + 1` goes; None if it has arrived."""
        if key.path.is_balanced:
            block = self.blocks[key.number]
            leg = Leg(block.store_device, block.user_device)
        else:
            stops = self._stops[key.number]
            behind = bisect.bisect_right(stops, link)
            leg = Leg(stops[behind - 1], stops[behind])
        return leg.hop(self.topology, link, forward=key.path.is_forward)

    def receiver(self, link: int, key: StreamKey) -> int:
        """Return the device that takes or sends on what has crossed a link, past those without one on the route."""
        step = 1 if key.path.is_forward else -1
        while self._carries(link + step, key) and self.hop(link + step, key) is None:
            link += step
        return link + key.path.is_forward

    def _carries(self, link: int, key: StreamKey) -> bool:
        return 0 <= link < len(self.links) and any(stream.key == key for stream in self.links[link])

    @functools.cached_property
    def _stops(self) -> dict[int, list[int]]:
        """The devices that make or take each tensor, or a part of it, in the order of the chain."""
        stops: dict[int, set[int]] = {}
        for device, slices in enumerate(self.mapping.devices):
            for part in slices:
                tensors = [part.layer.reads, part.layer.makes]
                for step in part.layer.sfu if part.is_last else ():
                    tensors += [*step.reads, step.makes]
                for tensor in tensors:
                    stops.setdefault(tensor.number, {0} if tensor.is_images else set()).add(device)
        return {number: sorted(devices) for number, devices in stops.items()}

    @functools.cached_property
    def carried(self) -> dict[Hop, tuple[Routed, ...]]:
        """The streams on each hop: first those between neighbours, to the right and to the left, then all others."""
        hops: dict[Hop, list[Routed]] = {}
        for link in range(len(self.links)):
            hops[link, link + 1], hops[link + 1, link] = [], []
        for link, streams in enumerate(self.links):
            for stream in streams:
                hop = self.hop(link, stream.key)
                if hop is not None:
                    hops.setdefault(hop, []).append(Routed(link + (not stream.path.is_forward), stream))
        return {hop: tuple(routed) for hop, routed in hops.items()}

    def streams(self, hop: Hop) -> tuple[Stream, ...]:
        """Return the streams on a hop."""
        return tuple(stream for _, stream in self.carried.get(hop, ()))

    def link_of(self, hop: Hop) -> Link:
        """Return the link of a hop; those that are not between neighbours are in a cluster whose links are alike."""
        return self.cluster.link_at(min(hop))

    def _wires(self, hop: Hop) -> tuple[Wire, ...]:
        sender, receiver = hop
        return ((sender, None), (None, receiver)) if self.topology.has_ports else (hop,)

    @functools.cached_property
    def _on_wires(self) -> dict[Wire, dict[DataPath, int]]:
        """For each path on each wire the bytes that all of it would carry in the time of the path's map."""
        streams: dict[Wire, list[Stream]] = {}
        for hop in self.carried:
            for wire in self._wires(hop):
                streams.setdefault(wire, []).extend(self.streams(hop))
        ends = {wire: self.link_of(hop) for hop in self.carried for wire in self._wires(hop)}
        return {wire: bytes_on_wire(ends[wire], on_wire) for wire, on_wire in streams.items()}

    def row_ps(self, hop: Hop, stream: Stream) -> int:
        """Return the time in ps of a stream's row on a hop, without latency: where it has the least share."""
        carried = max(self._on_wires[wire][stream.path] for wire in self._wires(hop))
        return row_ps(self.link_of(hop), carried, stream.rows)

    def sample_ps(self, hop: Hop) -> int:
        """Return the time in ps of a sample on the slowest stream of a hop; 0 if it has none."""
        return max((stream.rows * self.row_ps(hop, stream) for stream in self.streams(hop)), default=0)

    def part(self, hop: Hop) -> float:
        """Return the part of the bandwidth that all streams of a hop have: all of a link's, or a part of a port's."""
        if not self.topology.has_ports or not self._sizes[hop]:
            return 1.0
        return self._sizes[hop] / max(self._sizes[wire] for wire in self._wires(hop))

    @functools.cached_property
    def _sizes(self) -> dict[Wire, int]:
        """The bytes of a sample on each hop and each wire."""
        sizes: Counter[Wire] = Counter()
        for hop in self.carried:
            link = self.link_of(hop)
            size = sum(stream.rows * link.wire_bytes(stream.row_bytes) for stream in self.streams(hop))
            for wire in {hop, *self._wires(hop)}:
                sizes[wire] += size
        return sizes
