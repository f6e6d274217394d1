"""The routes of a chain's streams over the links of a topology, and what each direction of a link
carries.

A stream runs in *legs*, from a device that makes or takes what it carries to the next such device
of the chain: paths 1 to 4 from slice to slice of a layer, a map that bypasses layers from where it
is made to where it is taken, a block of balanced parameters from where it is stored to where it is
used. A leg takes the topology's route between its two ends. In a chain these are the links of all
devices between; elsewhere the route may have fewer.

Messages of the emulation always pass from device to device of the chain. So the clock of the n-th
device of a leg carries its rows over the n-th link of the route; where the route has fewer links,
the other devices hand on times as they come.

A direction of a link, or of a switch's port, carries all streams that are routed over it, and they
share it as in a chain. Through a switch a row takes the longer of its times at the sender's port
and at the receiver's.

Once a mini-batch, gradients of tied weights and the norm of gradients cross the chain. A device
begins to pass on a symbol's row when it has arrived, and, if the device adds a part of its own,
when all its gradients of the mini-batch are there. Rows follow one another on each link, which is
theirs alone: other streams are not slowed. All rows of a table are as long, so the first and the
last say when each arrives.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ...comm import FifoResource, Served, Times, Topology
from ..cluster import Cluster, Link
from ..mapping import (
    BalancedParameters,
    Crossing,
    DataPath,
    NormSum,
    Slice,
    Stream,
    StreamKey,
    TiedWeights,
    bytes_on_wire,
    row_ps,
)
from ..schedule import Fold

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
        """Return the link of the route that stands for that between devices `link` and `link + 1`,
        if there is one.
        """
        # The n-th hop of a route stands for the n-th link on the way; a shorter route has none for
        # the last links: the stream has arrived.
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
    devices: tuple[tuple[Slice, ...], ...]
    blocks: tuple[BalancedParameters, ...]
    links: tuple[tuple[Stream, ...], ...]

    def hop(self, link: int, key: StreamKey) -> Hop | None:
        """Return over which link the stream between devices `link` and `link + 1` goes; None if it
        has arrived.
        """
        if key.path.is_balanced:
            block = self.blocks[key.number]
            leg = Leg(block.store_device, block.user_device)
        else:
            stops = self._stops[key.number]
            behind = bisect.bisect_right(stops, link)
            leg = Leg(stops[behind - 1], stops[behind])
        return leg.hop(self.topology, link, forward=key.path.is_forward)

    def receiver(self, link: int, key: StreamKey) -> int:
        """Return the device that takes or sends on what has crossed a link, past those without one
        on the route.
        """
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
        for device, slices in enumerate(self.devices):
            for part in slices:
                tensors = [part.layer.reads, part.layer.makes]
                for step in part.layer.sfu if part.is_last else ():
                    tensors += [*step.reads, step.makes]
                for tensor in tensors:
                    # Images come from the host to the first device.
                    stops.setdefault(tensor.number, {0} if tensor.is_images else set()).add(device)
        return {number: sorted(devices) for number, devices in stops.items()}

    @functools.cached_property
    def carried(self) -> dict[Hop, tuple[Routed, ...]]:
        """The streams on each hop: first those between neighbours, to the right and to the left,
        then all others.
        """
        hops: dict[Hop, list[Routed]] = {}
        for link in range(len(self.links)):
            hops[link, link + 1], hops[link + 1, link] = [], []
        for link, streams in enumerate(self.links):
            for stream in streams:
                hop = self.hop(link, stream.key)
                if hop is not None:
                    hops.setdefault(hop, []).append(
                        Routed(link + (not stream.path.is_forward), stream)
                    )
        return {hop: tuple(routed) for hop, routed in hops.items()}

    def streams(self, hop: Hop) -> tuple[Stream, ...]:
        """Return the streams on a hop."""
        return tuple(stream for _, stream in self.carried.get(hop, ()))

    def link_of(self, hop: Hop) -> Link:
        """Return the link of a hop; those that are not between neighbours are in a cluster whose
        links are alike.
        """
        return self.cluster.link_at(min(hop))

    def _wires(self, hop: Hop) -> tuple[Wire, ...]:
        sender, receiver = hop
        return ((sender, None), (None, receiver)) if self.topology.has_ports else (hop,)

    @functools.cached_property
    def _on_wires(self) -> dict[Wire, dict[DataPath, int]]:
        """For each path on each wire the bytes that all of it would carry in the time of the path's
        map.
        """
        streams: dict[Wire, list[Stream]] = {}
        for hop in self.carried:
            for wire in self._wires(hop):
                streams.setdefault(wire, []).extend(self.streams(hop))
        ends = {wire: self.link_of(hop) for hop in self.carried for wire in self._wires(hop)}
        return {wire: bytes_on_wire(ends[wire], on_wire) for wire, on_wire in streams.items()}

    def row_ps(self, hop: Hop, stream: Stream) -> int:
        """Return the time in ps of a stream's row on a hop, without latency: where it has the least
        share.
        """
        carried = max(self._on_wires[wire][stream.path] for wire in self._wires(hop))
        return row_ps(self.link_of(hop), carried, stream.rows)

    def sample_ps(self, hop: Hop) -> int:
        """Return the time in ps of a sample on the slowest stream of a hop; 0 if it has none."""
        return max(
            (stream.rows * self.row_ps(hop, stream) for stream in self.streams(hop)), default=0
        )

    def part(self, hop: Hop) -> float:
        """Return the part of the bandwidth that all streams of a hop have: all of a link's, or a
        part of a port's.
        """
        if not self.topology.has_ports or not self._sizes[hop]:
            return 1.0
        return self._sizes[hop] / max(self._sizes[wire] for wire in self._wires(hop))

    @functools.cached_property
    def _sizes(self) -> dict[Wire, int]:
        """The bytes of a sample on each hop and each wire."""
        sizes: Counter[Wire] = Counter()
        for hop in self.carried:
            link = self.link_of(hop)
            size = sum(
                stream.rows * link.wire_bytes(stream.row_bytes) for stream in self.streams(hop)
            )
            # A set: without ports, a hop is its only wire.
            for wire in {hop, *self._wires(hop)}:
                sizes[wire] += size
        return sizes


class Burst(FifoResource):
    """A direction of a link, for the rows of a table: times are (1, 2), those of the first and of
    the last row.
    """

    def __init__(self, name: str, crossing: Crossing, link: Link) -> None:
        super().__init__(name, link.transfer_ps(crossing.row_bytes), link.latency_ps)
        self._rows = crossing.rows

    @property
    def table_ps(self) -> int:
        """Time in ps of all rows, without latency."""
        return self._rows * self.row_ps

    def serve(self, ready: Times) -> Times:
        """Return when the first and the last row arrive, in ps, given when they are ready."""
        [[first_ps, last_ps]] = ready.tolist()
        begin_ps = max(first_ps, self.free_ps)
        # The last row leaves a row behind its coming, and behind all rows ahead of it.
        left_ps = max(last_ps, begin_ps + (self._rows - 1) * self.row_ps) + self.row_ps
        self.free_ps = left_ps
        self.served_rows += self._rows
        self.busy_ps += self.table_ps
        if self.observer is not None:
            self.observer(
                Served(self.name, np.array([[begin_ps]]), np.array([[left_ps]]), left_ps - begin_ps)
            )
        arrives_ps = np.array([[begin_ps + self.row_ps, left_ps]], np.int64)
        return arrives_ps + self.latency_ps


Bursts = Mapping[StreamKey, Burst]
"""What a device sends before an update, by stream; hops that take no time are left out."""


class TiedHop(NamedTuple):
    """A device's part in a direction of an exchange: when the first and the last row come, and are
    at the next one.
    """

    came_ps: Times
    sends_ps: Times


def hop(
    bursts: Bursts, key: StreamKey, came_ps: Times | None, ready_ps: Times | int | None
) -> TiedHop:
    """Return what a device makes of what came in a direction; a part that it adds, if it does, is
    at `ready_ps`.
    """
    came = np.zeros((1, 2), np.int64) if came_ps is None else came_ps
    times = came if ready_ps is None else np.maximum(came, ready_ps)
    return TiedHop(came, bursts[key].serve(times) if key in bursts else times)


@dataclasses.dataclass(frozen=True)
class Ways:
    """The ways over links of what crosses a chain: how its stages lie on boards, and what lies
    between these.
    """

    fold: Fold
    topology: Topology
    link_at: Callable[[int], Link]

    def hop(self, device: int, table: Crossing, *, forward: bool) -> Hop | None:
        """Return over which link a device sends what crosses the chain before an update; None if it
        sends nothing.

        Ends of boards with several stages are stages.
        """
        fold, link = self.fold, device if forward else device - 1
        if not table.crosses(link):
            return None
        if fold.chunks > 1:
            first_way = fold.in_v or (
                link < fold.devices - 1 if forward else link >= fold.count - fold.devices
            )
            return (device, link + forward) if first_way and fold.link(link) is not None else None
        stops = [stop for stop in range(table.first, table.last + 1) if table.stops_at(stop)]
        behind = bisect.bisect_right(stops, link)
        return Leg(stops[behind - 1], stops[behind]).hop(self.topology, link, forward=forward)

    def bursts(self, tables: Iterable[Crossing], device: int) -> dict[StreamKey, Burst]:
        """Return what a device sends before each update, as resources.

        Where a device has several stages, they pass each link once: forward from the first of all
        stages on, backward from the last. In a V they pass the links of all stages.
        """
        bursts, device_of = dict[StreamKey, Burst](), self.fold.device
        for table, forward in itertools.product(tables, (True, False)):
            hop, key = self.hop(device, table, forward=forward), table.key(forward=forward)
            if hop is not None:
                name = f"{hop_name((device_of(hop[0]), device_of(hop[1])))}, {key}"
                bursts[key] = Burst(name, table, self.link_at(min(hop)))
        return bursts


class UpdateWaits:
    """When stages have what their updates wait for beside their own gradients of a mini-batch, as
    these come.

    Gradients of tied weights pass first, then the sum of the squares of all. What passes in a
    direction goes on as far as the gradients of the stages on its way are there:

        stage      0          1          2          3
        forward    embedding ---------------------> head        the embedding's gradients; sums of squares so far
        backward   embedding <--------------------- head        the head's gradients; the sum of all squares

    Mini-batches follow one another on each link.
    """

    def __init__(
        self,
        count: int,
        tied: Sequence[TiedWeights],
        norm: NormSum | None,
        bursts: Sequence[Bursts],
    ) -> None:
        self._tied, self._norm, self._bursts = tied, norm, bursts
        self._made = [0] * count
        self._open: dict[int, _MiniBatch] = {}

    def add(self, stage: int, own_ps: int) -> Iterator[tuple[int, int, int]]:
        """Take the time in ps at which a stage's own gradients of its next mini-batch are there.

        Yields what follows: a stage, the number of its mini-batch from 1 on, and when all that it
        takes from others for its update has come, 0 if it takes nothing.
        """
        self._made[stage] += 1
        number = self._made[stage]
        step = self._open.setdefault(
            number, _MiniBatch(len(self._made), self._tied, self._norm, self._bursts)
        )
        for other, came_ps in step.add(stage, own_ps):
            yield other, number, came_ps
        if step.is_done:
            del self._open[number]


class _MiniBatch:
    """What the updates of a mini-batch wait for."""

    def __init__(
        self,
        count: int,
        tied: Sequence[TiedWeights],
        norm: NormSum | None,
        bursts: Sequence[Bursts],
    ) -> None:
        self._bursts, self._norm = bursts, norm
        ends = itertools.product(tied, (True, False))
        self._ways = [_Way.of_tied(table, forward=forward) for table, forward in ends]
        self._needed = [0] * count
        for way in self._ways:
            for stage in way.needs:
                self._needed[stage] += 1
        self._squares = None if norm is None else _Way.of_norm(norm, forward=True)
        self._own_ps: dict[int, int] = {}
        self._came_ps = [0] * count
        self._whole_ps: dict[int, int] = {}
        """When a stage has its gradients, with those of tied weights."""
        self._left = count

    @property
    def is_done(self) -> bool:
        """Whether all stages have what they wait for."""
        return not self._left

    def add(self, stage: int, own_ps: int) -> Iterator[tuple[int, int]]:
        """See `UpdateWaits`; yields stages, and when what they take has come."""
        self._own_ps[stage] = own_ps
        touched = {stage}
        for way in self._ways:
            for needing, came_ps in way.go_on(self._bursts, self._own_ps):
                self._came_ps[needing] = max(self._came_ps[needing], came_ps)
                self._needed[needing] -= 1
                touched.add(needing)
        # In the order of the chain, since a set has none.
        for place in sorted(touched):
            if place in self._own_ps and not self._needed[place] and place not in self._whole_ps:
                self._whole_ps[place] = max(self._own_ps[place], self._came_ps[place])
                if self._squares is None:
                    self._left -= 1
                    yield place, self._came_ps[place]
        if self._squares is not None and self._norm is not None:
            for _ in self._squares.go_on(self._bursts, self._whole_ps):
                total = _Way.of_norm(self._norm, forward=False, times=self._squares.times)
                for place, total_ps in total.go_on(self._bursts, {}):
                    self._left -= 1
                    yield place, max(self._came_ps[place], total_ps)


@dataclasses.dataclass
class _Way:
    """A direction of a crossing: stages in order, those that add to it, and those that take what
    has come to them.
    """

    key: StreamKey
    stages: Sequence[int]
    adds: Collection[int]
    needs: Collection[int]
    times: Times | None = None

    @classmethod
    def of_tied(cls, tied: TiedWeights, *, forward: bool) -> _Way:
        """Return it of the embedding's gradients, which the head needs, or of the head's."""
        stages = range(tied.first, tied.last + 1)
        adds, needs = ([*filter(has, stages)] for has in (tied.has_embedding, tied.has_head))
        if forward:
            return cls(tied.key(forward=True), stages, adds, needs)
        return cls(tied.key(forward=False), stages[::-1], needs, adds)

    @classmethod
    def of_norm(cls, norm: NormSum, *, forward: bool, times: Times | None = None) -> _Way:
        """Return it of the sums of squares, which are whole behind the last stage, or of the whole
        sum.
        """
        stages = range(norm.first, norm.last + 1)
        if forward:
            return cls(norm.key(forward=True), stages, stages, (norm.last,))
        return cls(norm.key(forward=False), stages[::-1], (), stages, times)

    def go_on(
        self, bursts: Sequence[Bursts], ready_ps: Mapping[int, int]
    ) -> Iterator[tuple[int, int]]:
        """Go on to the first stage whose part is not there; yield stages that need what comes, and
        when it has come.
        """
        while self.stages:
            stage, adds = self.stages[0], self.stages[0] in self.adds
            if adds and stage not in ready_ps:
                return
            made = hop(bursts[stage], self.key, self.times, ready_ps[stage] if adds else None)
            self.times, self.stages = made.sends_ps, self.stages[1:]
            if stage in self.needs:
                yield stage, int(made.came_ps[0, 1])
