"""When each node ends a collective: its steps in time, on any interconnect, with costs at ends.

A node sends and receives at once, one message after another each way, in the order of the steps:

    sender     ready .. [send][== transfer ==]
    link                       . latency .
    receiver                              [== transfer ==][receive, copy][sum]

A message is ready when all that its pieces hold is at its sender. It occupies its sender's port
from then on, and its receiver's port a latency later, or when that is free: messages to one node
come behind one another (incast). What the receiver does with it then, at costs of its own
(`EndCosts`), goes on while the next one comes in, one behind another. Where messages of a round
share a link, each has an equal part of it (`Topology.shares`).
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..interconnect import NO_COSTS, Interconnect
from ..topology import Topology
from .collective import Collective, Phase, Round, Step, Way

Times = NDArray[np.int64]


class LaidPhase(NamedTuple):
    """A phase on a topology: for each message of each round, among how many it shares a link."""

    phase: Phase
    shares: Sequence[Sequence[int]]


def laid(phases: Iterable[Phase], topology: Topology) -> tuple[LaidPhase, ...]:
    """Return phases on a topology."""
    return tuple(
        LaidPhase(phase, [_shares(topology, steps) for steps in phase.rounds]) for phase in phases
    )


@functools.lru_cache(maxsize=16)
def laid_out(collective: Collective, ranks: int, topology: Topology) -> tuple[LaidPhase, ...]:
    """Return the phases of a collective on a topology, which all of its nodes share."""
    return laid(collective.phases(ranks, topology), topology)


def collective_ends_ps(
    phases: Iterable[LaidPhase],
    interconnect: Interconnect,
    ready_ps: Times,
    bounds_of: Callable[[int], Sequence[int]],
    *,
    compressed: Callable[[int], int] | None = None,
) -> Times:
    """Return when each node has what it should and has sent all, in ps.

    Args:
        phases: of a collective of as many nodes.
        interconnect: between them.
        ready_ps: when each node is ready (node).
        bounds_of: gives, for a number of pieces, the byte at which each begins, and the end.
        compressed: gives the bytes of a message after the codec.
    """
    nodes = [NodeTimes(interconnect, ready) for ready in ready_ps.tolist()]
    for phase, shared in phases:
        bounds = bounds_of(phase.pieces)
        for node in nodes:
            node.begin(phase.pieces)
        for steps, shares in zip(phase.rounds, shared, strict=True):
            sizes = [bounds[step.stop] - bounds[step.first] for step in steps]
            packed: Sequence[int | None] = [None] * len(sizes)
            if compressed is not None and not phase.of_weights:
                packed = [*map(compressed, sizes)]
            transfers = map(interconnect.transfer_ps, sizes, packed)
            # All that is sent first: it is of before the round; receivers may wait for their own.
            sent = [
                nodes[step.sender].send(step, size, share * transfer_ps)
                for step, size, share, transfer_ps in zip(
                    steps, sizes, shares, transfers, strict=True
                )
            ]
            for step, size, (begin_ps, transfer_ps) in zip(steps, sizes, sent, strict=True):
                nodes[step.receiver].receive(step, size, begin_ps, transfer_ps)
            for node in nodes:
                node.end_round()
    return np.array([node.end_ps for node in nodes], np.int64)


class NodeTimes:
    """When a node has which pieces, and when its ports are free.

    With `Interconnect.blocking`, its k-th message of a round and the k-th that it receives come one
    after the other, as with MPI_Send and MPI_Recv: both take as long as both together.
    """

    def __init__(self, interconnect: Interconnect, ready_ps: int) -> None:
        self._over, self._costs = interconnect, interconnect.ends
        self._data = np.full(1, ready_ps, np.int64)
        self._begun_ps = self._free_ps = ready_ps
        self._in_ps = self._busy_ps = 0
        self._sent: list[tuple[int, int]] = []
        self._received = 0

    @property
    def end_ps(self) -> int:
        """When it has all its pieces and has sent all."""
        return max(self._free_ps, int(self._data.max()))

    def begin(self, pieces: int) -> None:
        """Begin a phase, once it has sent, and has, all of the one before.

        Its messages are received while those of the phase before still are.
        """
        self._begun_ps = self._free_ps = self.end_ps
        self._in_ps = 0
        self._data = np.full(pieces, self._free_ps, np.int64)

    def end_round(self) -> None:
        """End a round."""
        self._sent, self._received = [], 0

    def send(self, step: Step, size: int, transfer_ps: int) -> tuple[int, int]:
        """Return when it sends a message of some bytes, and for how long; before it receives any of
        the round.
        """
        has_own_port = bool(step.way & Way.AT_A_PORT_OF_ITS_OWN)
        data_ps = int(self._data[step.first : step.stop].max())
        begin_ps = max(data_ps, 0 if has_own_port else self._free_ps) + self._costs.send_ps
        latency_ps = self._latency_ps(step)
        if size > self._costs.turn_bytes:
            latency_ps, transfer_ps = 0, transfer_ps + latency_ps
        busy_ps = begin_ps + transfer_ps + (latency_ps if step.way & Way.ACKNOWLEDGED else 0)
        self._free_ps = max(self._free_ps, busy_ps)
        self._sent.append((begin_ps, transfer_ps))
        return begin_ps, transfer_ps

    def receive(self, step: Step, size: int, begin_ps: int, transfer_ps: int) -> None:
        """Receive a message of some bytes that was sent at a time."""
        costs = self._costs
        latency_ps = 0 if size > costs.turn_bytes else self._latency_ps(step)
        free_ps = 0 if step.way & Way.AT_A_PORT_OF_ITS_OWN else self._in_ps
        if step.way & Way.SUM_BEFORE_RECEIVING:
            free_ps = max(free_ps, self._begun_ps)
        arrived_ps = done_ps = max(begin_ps + latency_ps, free_ps) + transfer_ps
        if self._over.blocking and self._received < len(self._sent):
            own_ps, taken_ps = self._sent[self._received]
            arrived_ps = done_ps = max(own_ps, begin_ps) + taken_ps + transfer_ps + 2 * latency_ps
            self._free_ps = max(self._free_ps, arrived_ps)
        self._received += 1
        if costs != NO_COSTS:
            done_ps = self._busy_ps = max(done_ps, self._busy_ps) + costs.received_ps(size)
        own = self._data[step.first : step.stop]
        done_ps = max(done_ps, int(own.max()))
        if step.adds:
            if step.way & Way.SUM_AFTER_SENDING:
                done_ps = max(done_ps, self._free_ps)
            done_ps += costs.sum_ps + self._over.sum_ps(size)
        self._in_ps = done_ps if step.way & Way.SUM_BEFORE_RECEIVING else arrived_ps
        own[...] = done_ps

    def _latency_ps(self, step: Step) -> int:
        return self._over.latency_ps * self._over.hops(step.sender, step.receiver)


def _shares(topology: Topology, steps: Round) -> list[int]:
    """Return among how many each message shares a link.

    Those at one port come one after another: the k-th of each port go together.
    """
    waves: dict[int, list[int]] = {}
    sent: Counter[int] = Counter()
    received: Counter[int] = Counter()
    for number, step in enumerate(steps):
        waves.setdefault(max(sent[step.sender], received[step.receiver]), []).append(number)
        if not step.way & Way.AT_A_PORT_OF_ITS_OWN:
            sent[step.sender] += 1
            received[step.receiver] += 1
    shares = [1] * len(steps)
    for numbers in waves.values():
        messages = [(steps[number].sender, steps[number].receiver) for number in numbers]
        for number, share in zip(numbers, topology.shares(messages), strict=True):
            shares[number] = share
    return shares
