"""When each node ends a collective: its steps in time, on any interconnect, with costs at both ends.

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

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ..interconnect import Interconnect
from ..topology import Topology
from .collective import Phase, Round, Step, Way

Times = NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class EndCosts:
    """What a message costs its two ends beside the link: of sender and receiver for each message,
    of the receiver for 1,000 bytes that it copies from a buffer, and for each sum.

    After LogGP (Alexandrov et al., 1995): `send_ps` and `receive_ps` are its o. Of messages above
    `turn_bytes` the two ends agree one by one: each occupies both for its latency, too.
    """

    send_ps: int = 0
    receive_ps: int = 0
    copy_ps_per_kbyte: int = 0
    sum_ps: int = 0
    turn_bytes: float = math.inf

    def received_ps(self, message_bytes: int) -> int:
        """Return what a message costs its receiver, without a sum."""
        return self.receive_ps - (-message_bytes * self.copy_ps_per_kbyte // 1000)


NO_COSTS = EndCosts()


def collective_ends_ps(
    phases: Iterable[Phase],
    interconnect: Interconnect,
    ready_ps: Times,
    bounds_of: Callable[[int], Sequence[int]],
    *,
    costs: EndCosts = NO_COSTS,
    compressed: Callable[[int], int] | None = None,
) -> Times:
    """Return when each node has what it should and has sent all, in ps.

    Args:
        phases: of a collective of as many nodes.
        interconnect: between them.
        ready_ps: when each node is ready (node).
        bounds_of: gives, for a number of pieces, the byte at which each begins, and the end.
        costs: of a message at its ends.
        compressed: gives the bytes of a message after the codec.
    """
    nodes = _Nodes(interconnect, ready_ps, costs)
    for phase in phases:
        nodes.begin(phase.pieces)
        bounds = bounds_of(phase.pieces)
        for steps in phase.rounds:
            sizes = [bounds[step.stop] - bounds[step.first] for step in steps]
            packed = sizes if compressed is None else [*map(compressed, sizes)]
            transfers = [
                interconnect.transfer_ps(
                    size, None if compressed is None or phase.of_weights else less
                )
                for size, less in zip(sizes, packed, strict=True)
            ]
            nodes.serve(steps, sizes, transfers)
    nodes.begin(1)
    return nodes.free_ps


class _Nodes:
    """When nodes have which pieces, and their ports are free."""

    def __init__(self, interconnect: Interconnect, ready_ps: Times, costs: EndCosts) -> None:
        self._interconnect, self._costs = interconnect, costs
        self.free_ps = np.array(ready_ps, np.int64)
        self._in: list[int] = []
        self._busy = [0] * len(ready_ps)
        self._data = self.free_ps[:, None]

    def begin(self, pieces: int) -> None:
        """Begin a phase: each node has all data once it has sent, and has, all of the one before.

        Its messages are received while those of the phase before still are.
        """
        self._in = [0] * len(self.free_ps)
        self.free_ps = np.maximum(self.free_ps, self._data.max(axis=1))
        self._data = np.repeat(self.free_ps[:, None], pieces, axis=1)

    def serve(self, steps: Round, sizes: Sequence[int], transfers: Sequence[int]) -> None:
        """Carry the messages of a round."""
        over = self._interconnect
        shares = _shares(over.topology, steps)
        have_ps = [int(self._data[step.sender, step.first : step.stop].max()) for step in steps]
        arrivals = []
        # All that is sent first: it is of before the round, and receivers may wait for their own.
        for step, size, data_ps, transfer_ps, share in zip(
            steps, sizes, have_ps, transfers, shares, strict=True
        ):
            free_ps = 0 if step.way & Way.AT_A_PORT_OF_ITS_OWN else int(self.free_ps[step.sender])
            begin_ps = max(data_ps, free_ps) + self._costs.send_ps
            latency_ps = over.latency_ps * over.hops(step.sender, step.receiver)
            if size > self._costs.turn_bytes:
                latency_ps, transfer_ps = 0, transfer_ps + latency_ps
            busy_ps = begin_ps + share * transfer_ps
            busy_ps += latency_ps if step.way & Way.ACKNOWLEDGED else 0
            self.free_ps[step.sender] = max(int(self.free_ps[step.sender]), busy_ps)
            arrivals.append((begin_ps + latency_ps, share * transfer_ps))
        for step, size, arrival in zip(steps, sizes, arrivals, strict=True):
            self._receive(step, size, *arrival)

    def _receive(self, step: Step, size: int, first_ps: int, transfer_ps: int) -> None:
        node, costs = step.receiver, self._costs
        own = self._data[node, step.first : step.stop]
        free_ps = 0 if step.way & Way.AT_A_PORT_OF_ITS_OWN else self._in[node]
        arrived_ps = done_ps = max(first_ps, free_ps) + transfer_ps
        if costs != NO_COSTS:
            done_ps = self._busy[node] = max(done_ps, self._busy[node]) + costs.received_ps(size)
        done_ps = max(done_ps, int(own.max()))
        if step.adds:
            if step.way & Way.SUM_AFTER_SENDING:
                done_ps = max(done_ps, int(self.free_ps[node]))
            done_ps += costs.sum_ps + self._interconnect.sum_ps(size)
        self._in[node] = done_ps if step.way & Way.SUM_BEFORE_RECEIVING else arrived_ps
        own[...] = done_ps


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
