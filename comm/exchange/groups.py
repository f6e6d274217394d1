"""Replicas of a chain that train data-parallel: who exchanges gradients with whom (INCEPTIONN, sections II-B and IV).

Every device exchanges with the devices of the same number in the other replicas, on links of their own. Replicas may
stand in groups (Fig. 1): each group sums by a ring, their leaders exchange by a ring (c) or an aggregator (b), and hand
on the total. With one group, all replicas are in one ring, or report to one aggregator (a).
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ...kernels.codec.codec import Codec, NoCodec
from ..interconnect import COMPRESSIBLE_TOS
from .aggregator import Aggregator, Report
from .broadcast import Above, Below, Broadcast
from .gradient import Gradient
from .nic import ORDINARY_TOS, Port
from .ring import Ring
from .time import broadcast_rounds, ring_places


@dataclasses.dataclass(frozen=True)
class DataParallel:
    """So many replicas in so many groups, how they exchange, and with which codec.

    Where there is timing alone, the codec is taken to make 1/`ratio` of the bytes.
    """

    replicas: int = 1
    groups: int = 1
    exchange: Literal["ring", "aggregator"] = "ring"
    codec: Codec = dataclasses.field(default_factory=NoCodec)
    ratio: float | None = None

    @property
    def members(self) -> int:
        """The replicas of a group."""
        return self.replicas // self.groups

    @property
    def top(self) -> list[int]:
        """Who exchange between groups: the leaders, or all where there is one group."""
        return list(range(self.replicas)) if self.groups == 1 else list(range(0, self.replicas, self.members))

    @property
    def aggregator(self) -> int:
        """The node that is no replica; on a chain it stands behind the last."""
        return self.replicas

    @property
    def tree(self) -> list[int]:
        """The nodes among which weights are broadcast: the aggregator, the one beside it, and so on."""
        return [self.aggregator, *reversed(self.top)]

    def places(self, samples: int, batch: int, replica: int) -> NDArray[np.int64]:
        """The places in an epoch of a replica's samples: its share of every mini-batch."""
        count, first, places = self.replicas, 0, []
        for size in step_sizes(samples, batch):
            places.append(np.arange(first + size * replica // count, first + size * (replica + 1) // count))
            first += size
        return np.concatenate(places)


def step_sizes(samples: int, batch: int) -> list[int]:
    """The samples of each mini-batch of an epoch."""
    return [min(batch, samples - first) for first in range(0, samples, batch)]


class Leg(enum.IntEnum):
    """What a line between two nodes is for."""

    GROUP = 0
    TOP = 1
    WEIGHTS = 2
    PROPAGATION = 3


class Line(NamedTuple):
    """The two ends of a line, as far as they live on this rank."""

    outlet: Any
    mailbox: Any


Lines = Callable[[Leg, int, int], Line]
"""The line of a leg from one node to another."""


class Part(Protocol):
    """A worker's part in one leg of the exchange."""

    async def run(self, gradient: Gradient, ready_ps: int) -> int:
        """Do it in place; when it is done."""


def parts(of: DataParallel, replica: int, port: Port, lines: Lines) -> list[Part]:
    """A replica's part in the exchange, leg after leg."""
    if of.groups == 1:
        return _top(of, replica, port, lines)
    leader = replica - replica % of.members
    group = range(leader, leader + of.members)
    found: list[Part] = [_ring(Leg.GROUP, group, replica, port, lines)]
    if replica == leader:
        found += _top(of, replica, port, lines)
    tos = COMPRESSIBLE_TOS if of.exchange == "ring" else ORDINARY_TOS
    return [*found, _broadcast(Leg.PROPAGATION, group, replica, port, lines, tos)]


def _top(of: DataParallel, replica: int, port: Port, lines: Lines) -> list[Part]:
    if of.exchange == "ring":
        return [_ring(Leg.TOP, of.top, replica, port, lines)]
    report = Report(port, lines(Leg.TOP, replica, of.aggregator).outlet)
    return [report, _broadcast(Leg.WEIGHTS, of.tree, replica, port, lines, ORDINARY_TOS)]


def _ring(leg: Leg, members: Sequence[int], replica: int, port: Port, lines: Lines) -> Ring:
    """A member's part in a ring; on a chain it is folded."""
    order = ring_places(len(members)).tolist() if port.network.topology == "chain" else range(len(members))
    ring = [members[place] for place in order]
    place = ring.index(replica)
    left, right = ring[place - 1], ring[(place + 1) % len(ring)]
    hops = port.network.hops(left, replica)
    return Ring(place, len(ring), port, lines(leg, left, replica).mailbox, lines(leg, replica, right).outlet, hops)


def _broadcast(leg: Leg, nodes: Sequence[int], node: int, port: Port, lines: Lines, tos: int) -> Broadcast:
    """A node's part in a broadcast from the first of the nodes."""
    pairs = [(nodes[a], nodes[b]) for sends in broadcast_rounds(len(nodes)) for a, b in sends]
    hops = port.network.hops
    above = [Above(lines(leg, a, b).mailbox, hops(a, b)) for a, b in pairs if b == node]
    below = [Below(lines(leg, a, b).outlet, hops(a, b)) for a, b in pairs if a == node]
    return Broadcast(port, above[0] if above else None, below, tos)


def aggregator(of: DataParallel, port: Port, count: int, with_data: bool, lines: Lines) -> Aggregator:
    """The aggregator of gradients of so many values."""
    node, hops = of.aggregator, port.network.hops
    workers = [Above(lines(Leg.TOP, worker, node).mailbox, hops(worker, node)) for worker in of.top]
    broadcast = _broadcast(Leg.WEIGHTS, of.tree, node, port, lines, ORDINARY_TOS)
    return Aggregator(port, count, with_data, workers, broadcast)


class Exchange:
    """One device's exchange with its like in the other replicas; keeps the last gradient that it brought.

    Mini-batches come one after another: an exchange begins when that of the mini-batch before is through.
    """

    def __init__(self, of: DataParallel, port: Port, legs: Sequence[Part]) -> None:
        self.replicas = of.replicas
        self.port = port
        self.spent_ps = 0
        self.last: NDArray[np.float32] | None = None
        self._legs = legs
        self._done_ps = 0

    async def total(self, gradient: Gradient, ready_ps: int) -> int:
        """Sum a gradient over all replicas, in place; when that is done."""
        self.last = None if gradient.values is None else gradient.values.copy()
        begin_ps = done_ps = max(ready_ps, self._done_ps)
        for leg in self._legs:
            done_ps = await leg.run(gradient, done_ps)
        self.spent_ps += done_ps - begin_ps
        self._done_ps = done_ps
        return done_ps
