"""Replicas of a chain that train data-parallel: which devices exchange gradients (INCEPTIONN,
sections II-B and IV).

Every device exchanges with the devices of the same number in the other replicas, on separate links.
Replicas may form groups (Fig. 1): each group sums by a ring, the groups' leaders exchange by a ring
(c) or an aggregator (b), and broadcast the total in their groups. With one group, all replicas are
in one ring, or send to one aggregator (a).

    8 replicas in 2 groups                   phases, one after another

    group 0   [0]- 1 - 2 - 3 -(0)            GROUP         a ring in each group
               |                             TOP           the leaders, 0 and 4: a ring, or to the aggregator,
    group 1   [4]- 5 - 6 - 7 -(4)            (WEIGHTS)     which broadcasts to them
                                             PROPAGATION   each leader broadcasts in its group

With numerics, `GradientExchange` carries these steps out, message by message; `TimedExchange`
computes the same times, to the picosecond, for all replicas at once.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ...kernels.codec import Codec, NoCodec
from ...kernels.number import FP32
from ..collective import Collective, collective_ends_ps, collective_of, piece_bounds
from ..host import Mailbox
from ..interconnect import COMPRESSIBLE_TOS, Interconnect
from .algorithms import Aggregator, Broadcast, Child, GradientUpload, Parent, Ring
from .nic import ORDINARY_TOS, Gradient, Nic
from .played import PlayedNode, PlayedPart
from .time import (
    Compressed,
    Times,
    aggregator_ends_ps,
    broadcast_rounds,
    broadcast_shares,
    bytes_at_ratio,
    hierarchy_ends_ps,
    ring_of_nodes_ps,
    ring_order,
    ring_shares,
)


@dataclasses.dataclass(frozen=True)
class DataParallel:
    """`replicas` chains in `groups` groups, how they exchange gradients, and with which codec.

    `exchange` is a ring or an aggregator, as INCEPTIONN has them, or names any other collective.

    With timing only, messages are 1/`ratio` of their size, if a ratio is given. With `feedback`,
    senders keep what the codec drops.
    """

    replicas: int = 1
    groups: int = 1
    exchange: str = "ring"
    codec: Codec = dataclasses.field(default_factory=NoCodec)
    ratio: float | None = None
    feedback: bool = False

    @property
    def residuals(self) -> int:
        """Number of rows, of all values of a gradient, that the first replica keeps of what the
        codec drops.
        """
        if not self.feedback or self.replicas == 1:
            return 0
        if self.collective is not None:
            return sum(not phase.of_weights for phase in self.collective.phases(self.replicas))
        # With groups: of the group's ring and of the leaders' exchange; a ring's total is
        # compressed once more, by the broadcast in the group.
        return 1 if self.groups == 1 else 2 + (self.exchange == "ring")

    @functools.cached_property
    def collective(self) -> Collective | None:
        """The collective, if it is neither INCEPTIONN's ring nor its aggregator."""
        return None if self.exchange in ("ring", "aggregator") else collective_of(self.exchange)

    @property
    def members(self) -> int:
        """Number of replicas in a group."""
        return self.replicas // self.groups

    @property
    def nodes(self) -> int:
        """Number of nodes on the interconnect: the replicas and, if there is one, the aggregator."""
        if self.collective is not None:
            return self.collective.nodes(self.replicas)
        return self.replicas + (self.exchange == "aggregator")

    @property
    def top(self) -> list[int]:
        """Replicas that exchange between groups: the leaders, or all where there is one group."""
        return (
            list(range(self.replicas))
            if self.groups == 1
            else list(range(0, self.replicas, self.members))
        )

    @property
    def aggregator(self) -> int:
        """Number of the aggregator's node, after the last replica."""
        return self.replicas

    @property
    def tree(self) -> list[int]:
        """Nodes among which weights are broadcast: the aggregator, its neighbour, and so on."""
        # In a chain the aggregator stands behind the last replica. In the order of the chain no two
        # messages of a round share a link.
        return [self.aggregator, *reversed(self.top)]

    def samples_of(self, replica: int, samples: int, batch: int) -> NDArray[np.int64]:
        """Return the positions in an epoch of a replica's samples: its share of every mini-batch."""
        count, first, places = self.replicas, 0, []
        for size in step_sizes(samples, batch):
            # By bounds, not by sizes: shares differ by a sample at most, and none is left out.
            places.append(
                np.arange(first + size * replica // count, first + size * (replica + 1) // count)
            )
            first += size
        return np.concatenate(places)


def step_sizes(samples: int, batch: int) -> list[int]:
    """Return the number of samples in each mini-batch of an epoch."""
    return [min(batch, samples - first) for first in range(0, samples, batch)]


class ExchangePhase(enum.IntEnum):
    """Purpose of a channel between two nodes."""

    GROUP = 0
    TOP = 1
    WEIGHTS = 2
    PROPAGATION = 3


class Channel(NamedTuple):
    """The two ends of a channel; None for an end on another rank."""

    outlet: Any
    mailbox: Any


Channels = Callable[[ExchangePhase, int, int], Channel]
"""Function of (phase, sender, receiver) that returns their channel."""


OnExchange = Callable[[int, int], None]
"""Callback with the begin and the end of an exchange in ps."""


class ExchangeStep(Protocol):
    """One worker's part in one phase of the exchange."""

    async def run(self, gradient: Gradient, ready_ps: int) -> int:
        """Run in place; return the finish time in ps."""


def exchange_steps(
    data_parallel: DataParallel, replica: int, nic: Nic, channels: Channels, count: int = 0
) -> Sequence[ExchangeStep]:
    """Return a replica's steps of the exchange, in the order of the phases; feedback keeps rows of
    `count` values.
    """
    kept = count if data_parallel.feedback else 0
    if data_parallel.collective is not None:
        return _played(data_parallel, data_parallel.collective, replica, nic, channels, kept)
    if data_parallel.groups == 1:
        return _top(data_parallel, replica, nic, channels, kept)
    leader = replica - replica % data_parallel.members
    groups = [range(first, first + data_parallel.members) for first in data_parallel.top]
    group = range(leader, leader + data_parallel.members)
    steps: list[ExchangeStep] = [_ring(ExchangePhase.GROUP, groups, replica, nic, channels, kept)]
    if replica == leader:
        steps += _top(data_parallel, replica, nic, channels, kept)
    # An aggregator's total stands for weights, which no codec may change; a ring's is gradients
    # still.
    tos = COMPRESSIBLE_TOS if data_parallel.exchange == "ring" else ORDINARY_TOS
    return [
        *steps,
        _broadcast(ExchangePhase.PROPAGATION, group, replica, nic, channels, tos, kept, groups),
    ]


def _played(
    data_parallel: DataParallel,
    collective: Collective,
    node: int,
    nic: Nic,
    channels: Channels,
    kept: int,
) -> list[PlayedPart]:
    """Return a node's parts in the phases of a collective."""
    phases = collective.phases(data_parallel.replicas, nic.interconnect.topology)
    parts = []
    for number, phase in zip(ExchangePhase, phases, strict=False):
        steps = [*itertools.chain(*phase.rounds)]
        receivers = {step.receiver for step in steps if step.sender == node}
        senders = {step.sender for step in steps if step.receiver == node}
        outlets = {other: channels(number, node, other).outlet for other in sorted(receivers)}
        mailboxes = {other: channels(number, other, node).mailbox for other in sorted(senders)}
        residual = nic.residual(kept) if kept and not phase.of_weights else None
        parts.append(PlayedPart(node, phase, nic, outlets, mailboxes, residual))
    return parts


def _top(
    data_parallel: DataParallel, replica: int, nic: Nic, channels: Channels, kept: int
) -> Sequence[ExchangeStep]:
    if data_parallel.exchange == "ring":
        return [_ring(ExchangePhase.TOP, [data_parallel.top], replica, nic, channels, kept)]
    outlet = channels(ExchangePhase.TOP, replica, data_parallel.aggregator).outlet
    upload = GradientUpload(nic, outlet, nic.residual(kept) if kept else None)
    return [
        upload,
        _broadcast(ExchangePhase.WEIGHTS, data_parallel.tree, replica, nic, channels, ORDINARY_TOS),
    ]


def _ring(
    phase: ExchangePhase,
    groups: Sequence[Sequence[int]],
    replica: int,
    nic: Nic,
    channels: Channels,
    kept: int,
) -> Ring:
    """Return a member's step in the ring of its group, in the order of the topology; all groups'
    run together.
    """
    rings = [ring_order(nic.interconnect.topology, members) for members in groups]
    shares = ring_shares(nic.interconnect.topology, rings)
    number = next(number for number, ring in enumerate(rings) if replica in ring)
    ring = rings[number]
    place = ring.index(replica)
    # At place 0, index -1 is the last one: the ring is closed.
    left, right = ring[place - 1], ring[(place + 1) % len(ring)]
    inlet, outlet = channels(phase, left, replica).mailbox, channels(phase, replica, right).outlet
    residual, hops = nic.residual(kept) if kept else None, nic.interconnect.hops(left, replica)
    return Ring(place, len(ring), nic, inlet, outlet, hops, residual, shares[number][place])


def _broadcast(
    phase: ExchangePhase,
    nodes: Sequence[int],
    node: int,
    nic: Nic,
    channels: Channels,
    tos: int,
    kept: int = 0,
    trees: Sequence[Sequence[int]] | None = None,
) -> Broadcast:
    """Return a node's step in a broadcast from the first of the nodes; `trees` are those at the
    same time.
    """
    pairs = [(nodes[a], nodes[b]) for sends in broadcast_rounds(len(nodes)) for a, b in sends]
    hops = nic.interconnect.hops
    shares = broadcast_shares(nic.interconnect.topology, [nodes] if trees is None else trees)
    parents = [Parent(channels(phase, a, b).mailbox, hops(a, b)) for a, b in pairs if b == node]
    children = [
        Child(channels(phase, a, b).outlet, hops(a, b), shares[a, b]) for a, b in pairs if a == node
    ]
    loses = (
        bool(kept and children) and not parents and tos == COMPRESSIBLE_TOS
    )  # others pass on what it lost
    return Broadcast(
        nic, parents[0] if parents else None, children, tos, nic.residual(kept) if loses else None
    )


def aggregator(
    data_parallel: DataParallel, nic: Nic, count: int, with_data: bool, channels: Channels
) -> Aggregator | PlayedNode:
    """Return the node beside the replicas, which sums gradients of `count` values."""
    node, hops = data_parallel.aggregator, nic.interconnect.hops
    if data_parallel.collective is not None:
        parts = _played(data_parallel, data_parallel.collective, node, nic, channels, 0)
        return PlayedNode(count, with_data, parts)
    workers = [
        Parent(channels(ExchangePhase.TOP, worker, node).mailbox, hops(worker, node))
        for worker in data_parallel.top
    ]
    broadcast = _broadcast(
        ExchangePhase.WEIGHTS, data_parallel.tree, node, nic, channels, ORDINARY_TOS
    )
    return Aggregator(nic, count, with_data, workers, broadcast)


class GradientExchange:
    """One device's exchange with its counterparts in the other replicas; keeps its own last
    gradient.

    An exchange does not begin before that of the previous mini-batch has ended.
    """

    def __init__(
        self, data_parallel: DataParallel, nic: Nic, steps: Sequence[ExchangeStep]
    ) -> None:
        self.replicas = data_parallel.replicas
        self.nic = nic
        self.spent_ps = 0
        self.last: NDArray[np.float32] | None = None
        self.observer: OnExchange | None = None
        self._steps = steps
        self._done_ps = 0

    async def total(self, gradient: Gradient, ready_ps: int) -> int:
        """Sum a gradient over all replicas, in place; return the finish time in ps."""
        # Copied, since the exchange overwrites it with the sum.
        self.last = None if gradient.values is None else gradient.values.copy()
        begin_ps = done_ps = max(ready_ps, self._done_ps)
        for step in self._steps:
            done_ps = await step.run(gradient, done_ps)
        self.spent_ps += done_ps - begin_ps
        self._done_ps = done_ps
        if self.observer is not None:
            self.observer(begin_ps, done_ps)
        return done_ps

    def state(self) -> dict[str, Any]:
        """Return the training state."""
        return {"done_ps": self._done_ps, "spent_ps": self.spent_ps, "nic": self.nic.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self._done_ps, self.spent_ps = state["done_ps"], state["spent_ps"]
        self.nic.restore(state["nic"])


def exchange_ends_ps(
    data_parallel: DataParallel,
    interconnect: Interconnect,
    count: int,
    ready_ps: Times,
    free_ps: int = 0,
) -> tuple[Times, int]:
    """Return when each replica has finished an exchange, and when the aggregator has, in ps.

    Args:
        of: the replicas, and how they exchange.
        interconnect: between them.
        count: number of values in a gradient.
        ready_ps: when each replica is ready.
        free_ps: when the aggregator is free, if there is one.
    """
    compressed = _compressed(data_parallel)
    if data_parallel.collective is not None:
        ready_ps = np.append(ready_ps, [free_ps] * (data_parallel.nodes - data_parallel.replicas))
        ends = collective_ends_ps(
            data_parallel.collective.phases(data_parallel.replicas, interconnect.topology),
            interconnect,
            ready_ps,
            lambda pieces: [FP32.bytes_of(at) for at in piece_bounds(count, pieces)],
            compressed=None if compressed is None else lambda size: int(compressed(np.array(size))),
        )
        return ends[: data_parallel.replicas], int(ends[-1])
    if data_parallel.groups > 1:
        in_groups = ready_ps.reshape(data_parallel.groups, data_parallel.members)
        top: Literal["ring", "aggregator"] = (
            "ring" if data_parallel.exchange == "ring" else "aggregator"
        )
        ends, free_ps = hierarchy_ends_ps(interconnect, in_groups, count, top, compressed, free_ps)
        return ends.reshape(-1), free_ps
    if data_parallel.exchange == "ring":
        return ring_of_nodes_ps(interconnect, ready_ps, count, compressed), free_ps
    gradients = (
        None
        if compressed is None
        else compressed(np.full(data_parallel.replicas, FP32.bytes_of(count)))
    )
    return aggregator_ends_ps(interconnect, ready_ps, count, gradients, free_ps=free_ps)


def exchange_ps(data_parallel: DataParallel, interconnect: Interconnect, count: int) -> int:
    """Return the duration of an exchange of `count` values for which all replicas are ready at
    once, in ps.
    """
    return int(
        exchange_ends_ps(
            data_parallel, interconnect, count, np.zeros(data_parallel.replicas, np.int64)
        )[0].max()
    )


def _compressed(data_parallel: DataParallel) -> Compressed | None:
    """Return the codec's assumed sizes, or None without a codec; sizes that depend on values need a
    ratio.
    """
    codec = data_parallel.codec
    if not codec.compresses:
        return None
    if data_parallel.ratio is not None:
        return functools.partial(bytes_at_ratio, ratio=data_parallel.ratio)
    return lambda message_bytes: codec.expected_bytes(FP32.values_in(message_bytes))


class TimedExchange:
    """The timed exchange of `count` values among all replicas' devices of one number."""

    def __init__(self, data_parallel: DataParallel, interconnect: Interconnect, count: int) -> None:
        self.replicas = data_parallel.replicas
        self._data_parallel, self._interconnect, self._count = data_parallel, interconnect, count
        self._ready_ps = np.zeros(data_parallel.replicas, np.int64)
        self._expected, self.aggregator_ps = data_parallel.replicas, 0
        self._mailboxes = [Mailbox() for _ in range(data_parallel.replicas)]

    async def end_ps(self, replica: int, ready_ps: int) -> int:
        """Return when a replica has finished the exchange, in ps; wait for the ready times of all
        others.
        """
        self._ready_ps[replica] = ready_ps
        self._expected -= 1
        if not self._expected:  # the last one to come computes the ends of all, and wakes them
            self._expected = self.replicas
            ends, self.aggregator_ps = exchange_ends_ps(
                self._data_parallel,
                self._interconnect,
                self._count,
                self._ready_ps,
                self.aggregator_ps,
            )
            for mailbox, end_ps in zip(self._mailboxes, ends.tolist(), strict=True):
                mailbox.put(end_ps)
        return int(await self._mailboxes[replica].get())


class TimedMember:
    """One replica's timed exchanges, one after another, with the interface of `GradientExchange`."""

    def __init__(self, exchange: TimedExchange, replica: int) -> None:
        self.replicas = exchange.replicas
        self.spent_ps = 0
        self.observer: OnExchange | None = None
        self._exchange, self._replica, self._done_ps = exchange, replica, 0

    async def total(self, gradient: Gradient, ready_ps: int) -> int:
        """Return the finish time in ps; there are no values."""
        begin_ps = max(ready_ps, self._done_ps)
        self._done_ps = await self._exchange.end_ps(self._replica, begin_ps)
        self.spent_ps += self._done_ps - begin_ps
        if self.observer is not None:
            self.observer(begin_ps, self._done_ps)
        return self._done_ps

    def state(self) -> dict[str, int]:
        """Return the training state."""
        return {
            "done_ps": self._done_ps,
            "spent_ps": self.spent_ps,
            # A timed aggregator is no object with a state of its own: members keep its time for it.
            "aggregator_ps": self._exchange.aggregator_ps,
        }

    def restore(self, state: dict[str, int]) -> None:
        """Restore what `state` returned."""
        self._done_ps, self.spent_ps = state["done_ps"], state["spent_ps"]
        self._exchange.aggregator_ps = state["aggregator_ps"]
