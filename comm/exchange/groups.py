"""Replicas of a chain that train data-parallel: which devices exchange gradients (INCEPTIONN,
sections II-B and IV).

Every device exchanges with the devices of the same number in the other replicas, on separate links.
Replicas may form groups (Fig. 1): each group sums by a ring, the groups' leaders exchange by a ring
(c) or an aggregator (b), and broadcast the total in their groups. With one group, all replicas are
in one ring, or send to one aggregator (a).

    8 replicas in 2 groups                   phases, one after another

    group 0   [0]- 1 - 2 - 3 -(0)            a ring in each group
               |                             the leaders, 0 and 4: a ring, or to the aggregator,
    group 1   [4]- 5 - 6 - 7 -(4)            which broadcasts to them
                                             each leader broadcasts in its group

These and all other ways are collectives (`comm.collective`), of which each replica plays its part
(`played.py`). Where replicas share out the update (ZeRO, SC 2020), an exchange has two halves
(`comm.collective.halves`): sums, and then, after the update, weights. Where they share out weights,
too, the first half is that of each layer, and the second comes before each use of a layer.

With numerics, `GradientExchange` carries their steps out, message by message; `TimedExchange`
computes the same times, to the picosecond, for all replicas at once.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels.codec import Codec, NoCodec
from ...kernels.number import FP32
from ..collective import (
    Collective,
    LaidPhase,
    collective_ends_ps,
    collective_of,
    halves,
    is_written,
    laid_out,
    own_pieces,
    piece_bounds,
)
from ..collective.levels import AggregatorNode, RingOfRings, RingsUnderAggregator
from ..collective.player import NodeTimes
from ..collective.rings import Ring
from ..host import Mailbox
from ..interconnect import Interconnect
from ..topology import Topology
from .nic import WEIGHT_BYTES, Gradient, Nic, Traffic
from .played import PlayedNode, PlayedPart
from .time import (
    Compressed,
    Times,
    aggregator_ends_ps,
    bytes_at_ratio,
    hierarchy_ends_ps,
    ring_of_nodes_ps,
    ring_steps,
)


@dataclasses.dataclass(frozen=True)
class DataParallel:
    """`replicas` chains in `groups` groups, how they exchange gradients, and with which codec.

    `exchange` is a ring or an aggregator, as INCEPTIONN has them, or names any other collective.

    With timing only, messages are 1/`ratio` of their size, if a ratio is given. With `feedback`,
    senders keep what the codec drops. `zero` is the stage of ZeRO: from 1 on, each replica updates
    its share of the parameters, and an exchange has two halves; at 3 each keeps but its share.
    """

    replicas: int = 1
    groups: int = 1
    exchange: str = "ring"
    codec: Codec = dataclasses.field(default_factory=NoCodec)
    ratio: float | None = None
    feedback: bool = False
    zero: int = 0

    @property
    def in_halves(self) -> bool:
        """Whether replicas update their shares of the parameters between the halves of an
        exchange.
        """
        return self.zero > 0

    @property
    def shares_weights(self) -> bool:
        """Whether replicas keep their shares of each layer's weights, and gather these for each
        use.
        """
        return self.zero > 2

    @property
    def residuals(self) -> int:
        """Number of rows, of all values of a gradient, that the first replica keeps of what the
        codec drops.
        """
        if not self.feedback or self.replicas == 1:
            return 0
        phases = self.collective.phases(self.replicas)
        return sum(not phase.of_weights for phase in phases)

    @property
    def is_inceptionns(self) -> bool:
        """Whether it is a ring or an aggregator, perhaps in groups."""
        return self.exchange in ("ring", "aggregator")

    @property
    def exchange_name(self) -> str:
        """What a sentence calls the exchange."""
        return "steps from a file" if is_written(self.exchange) else self.exchange

    @functools.cached_property
    def collective(self) -> Collective:
        """The collective by which gradients are summed, in halves where these are exchanged
        apart.
        """
        return halves(self._whole) if self.in_halves else self._whole

    @property
    def _whole(self) -> Collective:
        if not self.is_inceptionns:
            return collective_of(self.exchange)
        if self.exchange == "ring":
            return Ring() if self.groups == 1 else RingOfRings(self.groups)
        return AggregatorNode() if self.groups == 1 else RingsUnderAggregator(self.groups)

    def laid_out(self, topology: Topology) -> tuple[LaidPhase, ...]:
        """Return the phases of an exchange on a topology."""
        return laid_out(self.collective, self.replicas, topology)

    def pieces(self, topology: Topology) -> list[int]:
        """Return the piece of a row that each replica updates, of as many as there are replicas."""
        return own_pieces([laid.phase for laid in self.laid_out(topology)], self.replicas)

    def shares(self, piece: int, rows: Sequence[int]) -> Iterator[slice]:
        """Yield the places of a piece in each of several consecutive rows; `rows` are their numbers
        of values.
        """
        firsts = itertools.accumulate(rows, initial=0)
        for first, count in zip(firsts, rows, strict=False):
            bounds = piece_bounds(count, self.replicas)
            yield slice(first + bounds[piece], first + bounds[piece + 1])

    @property
    def members(self) -> int:
        """Number of replicas in a group."""
        return self.replicas // self.groups

    @property
    def nodes(self) -> int:
        """Number of nodes on the interconnect: the replicas and, if there is one, the
        aggregator.
        """
        return self.collective.nodes(self.replicas)

    @property
    def aggregator(self) -> int:
        """Number of the aggregator's node, after the last replica."""
        return self.replicas

    def samples_of(self, replica: int, samples: int, batch: int) -> NDArray[np.int64]:
        """Return the positions in an epoch of a replica's samples: its share of every
        mini-batch.
        """
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


class Channel(NamedTuple):
    """The two ends of a channel; None for an end on another rank."""

    outlet: Any
    mailbox: Any


Channels = Callable[[int, int, int], Channel]
"""Function of (number of a phase, sender, receiver) that returns their channel."""


OnExchange = Callable[[int, int], None]
"""Callback with the begin and the end of an exchange in ps."""


def exchange_parts(
    data_parallel: DataParallel, node: int, nic: Nic, channels: Channels, count: int = 0
) -> list[PlayedPart]:
    """Return a node's parts in the phases of an exchange; feedback keeps rows of `count` values."""
    phases = data_parallel.laid_out(nic.interconnect.topology)
    keeps = data_parallel.feedback and count > 0
    parts = []
    for number, laid in enumerate(phases):
        phase = laid.phase
        steps = [*itertools.chain(*phase.rounds)]
        receivers = {step.receiver for step in steps if step.sender == node}
        senders = {step.sender for step in steps if step.receiver == node}
        outlets = {other: channels(number, node, other).outlet for other in sorted(receivers)}
        mailboxes = {other: channels(number, other, node).mailbox for other in sorted(senders)}
        residual = nic.residual(count) if keeps and receivers and not phase.of_weights else None
        parts.append(PlayedPart(node, laid, nic, outlets, mailboxes, residual))
    return parts


def aggregator(
    data_parallel: DataParallel, nic: Nic, count: int, with_data: bool, channels: Channels
) -> PlayedNode:
    """Return the node beside the replicas, which sums gradients of `count` values."""
    parts = exchange_parts(data_parallel, data_parallel.aggregator, nic, channels)
    return PlayedNode(count, with_data, nic.interconnect, parts)


class _Member(abc.ABC):
    """One device's exchanges with its counterparts in the other replicas, one after another.

    Where an exchange has halves, this replica has a `piece` of each row between them.
    """

    def __init__(self, data_parallel: DataParallel, piece: int) -> None:
        self.replicas, self.in_halves = data_parallel.replicas, data_parallel.in_halves
        self.shares_weights = data_parallel.shares_weights
        self.piece = piece
        self.spent_ps = 0
        self.observer: OnExchange | None = None
        self._begun_ps = self._done_ps = 0

    async def total(self, gradient: Gradient, ready_ps: int) -> int:
        """Sum a gradient over all replicas, in place; return the finish time in ps."""
        self._note(gradient)
        return await self._exchange(gradient, ready_ps, None)

    async def scatter(self, gradient: Gradient, ready_ps: int, rows: Sequence[int]) -> int:
        """Sum a gradient over all replicas, row by row, in place: this replica keeps its piece of
        each row, and zeros around it. `rows` are the rows' numbers of values. Return the finish
        time in ps.
        """
        self._note(gradient)
        for row in gradient.rows(rows):
            ready_ps = await self._exchange(row, ready_ps, False, closes=self.shares_weights)
            if row.values is not None:
                bounds = piece_bounds(row.count, self.replicas)
                row.values[: bounds[self.piece]] = 0
                row.values[bounds[self.piece + 1] :] = 0
        return ready_ps

    async def gather(self, row: Gradient, ready_ps: int, *, closes: bool = True) -> int:
        """Fill a row, of which each replica has its piece, in place; return the finish time in ps.

        That of the weights `closes` the exchange of a mini-batch.
        """
        return await self._exchange(row, ready_ps, True, closes=closes)

    async def gather_layer(self, count: int, ready_ps: int) -> int:
        """Gather the `count` weights of a layer, of which each replica keeps a piece, for one use;
        return the finish time in ps.

        No values travel: those of a version are the same each time (`share`).
        """
        self._begun_ps = max(ready_ps, self._done_ps)
        return await self._exchange(Gradient(count, None), ready_ps, True)

    async def share(self, row: Gradient) -> None:  # noqa: B027  # without values there is nothing to do
        """Fill a row of new weights, of which each replica has its piece, in place and in no time:
        each use gathers them anew (`gather_layer`).
        """

    def _note(self, gradient: Gradient) -> None:  # noqa: B027  # without values there is nothing to do
        """Take note of this replica's own gradient, which an exchange overwrites."""

    async def _exchange(
        self, row: Gradient, ready_ps: int, of_weights: bool | None, *, closes: bool = True
    ) -> int:
        begin_ps = max(ready_ps, self._done_ps)
        if not of_weights:
            self._begun_ps = begin_ps
        self._done_ps = done_ps = await self._end_ps(row, begin_ps, of_weights)
        self.spent_ps += done_ps - begin_ps
        if closes and self.observer is not None:
            self.observer(self._begun_ps, done_ps)
        return done_ps

    @abc.abstractmethod
    async def _end_ps(self, row: Gradient, begin_ps: int, of_weights: bool | None) -> int:
        """Carry out a half of an exchange, or all of it where it is none; return its end in ps."""


class GradientExchange(_Member):
    """A device's exchanges of values, message by message; keeps its own last gradient."""

    def __init__(
        self, data_parallel: DataParallel, nic: Nic, parts: Sequence[PlayedPart], piece: int = 0
    ) -> None:
        super().__init__(data_parallel, piece)
        self.nic = nic
        self.last: NDArray[np.float32] | None = None
        self._parts = parts

    def _note(self, gradient: Gradient) -> None:
        self.last = None if gradient.values is None else gradient.values.copy()

    async def gather_layer(self, count: int, ready_ps: int) -> int:
        """See `_Member`; weights that are sent count among the NIC's traffic."""
        sent = sum(part.sent_values(count) for part in self._parts if part.of_weights)
        self.nic.traffic += Traffic(statistics={WEIGHT_BYTES: FP32.bytes_of(sent)})
        return await super().gather_layer(count, ready_ps)

    async def share(self, row: Gradient) -> None:
        """See `_Member`."""
        await self._end_ps(row, 0, True)

    async def _end_ps(self, row: Gradient, begin_ps: int, of_weights: bool | None) -> int:
        over = self.nic.interconnect
        times = NodeTimes(over, begin_ps + over.ends.start_ps)
        for part in self._parts:
            if of_weights in (None, part.of_weights):
                await part.run(row, times)
        return times.end_ps

    def state(self) -> dict[str, Any]:
        """Return the training state."""
        return {"done_ps": self._done_ps, "spent_ps": self.spent_ps, "nic": self.nic.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self._done_ps, self.spent_ps = state["done_ps"], state["spent_ps"]
        self.nic.restore(state["nic"])


def played_ends_ps(
    phases: Sequence[LaidPhase],
    interconnect: Interconnect,
    count: int,
    ready_ps: Times,
    compressed: Compressed | None = None,
) -> Times:
    """Return when each node of a collective has the sum of gradients of `count` values, in ps."""
    return collective_ends_ps(
        phases,
        interconnect,
        ready_ps,
        lambda pieces: [FP32.bytes_of(at) for at in piece_bounds(count, pieces)],
        compressed=None if compressed is None else lambda size: int(compressed(np.array(size))),
    )


def exchange_ends_ps(
    data_parallel: DataParallel,
    interconnect: Interconnect,
    count: int,
    ready_ps: Times,
    free_ps: int = 0,
) -> tuple[Times, int]:
    """Return when each replica has finished an exchange, and when the aggregator has, in ps; where
    weights are shared out, that of sums alone.

    Args:
        data_parallel: the replicas, and how they exchange.
        interconnect: between them.
        count: number of values in a gradient.
        ready_ps: when each replica is ready.
        free_ps: when the aggregator is free, if there is one.
    """
    if data_parallel.in_halves:
        for of_weights in (False,) if data_parallel.shares_weights else (False, True):
            ready_ps = half_ends_ps(
                data_parallel, interconnect, count, ready_ps, of_weights=of_weights
            )
        return ready_ps, free_ps
    compressed = _compressed(data_parallel)
    ready_ps = ready_ps + interconnect.ends.start_ps
    if not data_parallel.is_inceptionns or not interconnect.is_plain:
        ready_ps = np.append(ready_ps, [free_ps] * (data_parallel.nodes - data_parallel.replicas))
        phases = data_parallel.laid_out(interconnect.topology)
        ends = played_ends_ps(phases, interconnect, count, ready_ps, compressed)
        has_aggregator = data_parallel.nodes > data_parallel.replicas
        return ends[: data_parallel.replicas], int(ends[-1]) if has_aggregator else free_ps
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


def half_ends_ps(
    data_parallel: DataParallel,
    interconnect: Interconnect,
    count: int,
    ready_ps: Times,
    *,
    of_weights: bool,
) -> Times:
    """Return when each replica has finished a half of an exchange of `count` values, in ps: that of
    sums, or that `of_weights`.
    """
    compressed = None if of_weights else _compressed(data_parallel)
    ready_ps = ready_ps + interconnect.ends.start_ps
    if data_parallel.exchange == "ring" and interconnect.is_plain:
        workers = data_parallel.replicas
        steps = ring_steps(workers)[workers - 1 :] if of_weights else range(1, workers)
        return ring_of_nodes_ps(interconnect, ready_ps, count, compressed, steps=steps)
    phases = [
        laid
        for laid in data_parallel.laid_out(interconnect.topology)
        if laid.phase.of_weights == of_weights
    ]
    return played_ends_ps(phases, interconnect, count, ready_ps, compressed)


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
        self.data_parallel, self.aggregator_ps = data_parallel, 0
        self._interconnect, self._count = interconnect, count
        self._ready_ps = np.zeros(data_parallel.replicas, np.int64)
        self._expected = data_parallel.replicas
        self._mailboxes = [Mailbox() for _ in range(data_parallel.replicas)]

    async def end_ps(
        self, replica: int, ready_ps: int, count: int, of_weights: bool | None = None
    ) -> int:
        """Return when a replica has finished the exchange, or a half of one of `count` values, in
        ps; wait for the ready times of all others.
        """
        self._ready_ps[replica] = ready_ps
        self._expected -= 1
        if not self._expected:  # the last one to come computes the ends of all, and wakes them
            self._expected = self.data_parallel.replicas
            ends = self._ends_ps(count, of_weights)
            for mailbox, end_ps in zip(self._mailboxes, ends.tolist(), strict=True):
                mailbox.put(end_ps)
        return int(await self._mailboxes[replica].get())

    def _ends_ps(self, count: int, of_weights: bool | None) -> Times:
        between = self.data_parallel, self._interconnect
        if of_weights is not None:
            return half_ends_ps(*between, count, self._ready_ps, of_weights=of_weights)
        ends, self.aggregator_ps = exchange_ends_ps(
            *between, self._count, self._ready_ps, self.aggregator_ps
        )
        return ends


class TimedMember(_Member):
    """One replica's timed exchanges, of no values."""

    def __init__(self, exchange: TimedExchange, replica: int) -> None:
        super().__init__(exchange.data_parallel, 0)
        self._timed, self._replica = exchange, replica

    async def _end_ps(self, row: Gradient, begin_ps: int, of_weights: bool | None) -> int:
        return await self._timed.end_ps(self._replica, begin_ps, row.count, of_weights)

    def state(self) -> dict[str, int]:
        """Return the training state."""
        return {
            "done_ps": self._done_ps,
            "spent_ps": self.spent_ps,
            # A timed aggregator is no object with a state of its own: members keep its time for it.
            "aggregator_ps": self._timed.aggregator_ps,
        }

    def restore(self, state: dict[str, int]) -> None:
        """Restore what `state` returned."""
        self._done_ps, self.spent_ps = state["done_ps"], state["spent_ps"]
        self._timed.aggregator_ps = state["aggregator_ps"]
