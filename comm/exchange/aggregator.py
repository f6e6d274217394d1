"""The worker-aggregator baseline (INCEPTIONN, section II-B): all gradients to one node, new weights back to all.

The aggregator receives one gradient after another through its one link, in the order of the workers, and adds each. The
reply is not compressed, since it represents weights: the sum is sent in their place, at their size, and every worker
computes from it the weights that the aggregator would have computed. The reply goes down a binomial tree: in each
round, nodes that have the message send it to half of the nodes behind them; in hierarchies the total goes the same way
from a group's leader to its members. `broadcast_rounds` gives the senders and receivers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from ..host import Mailbox
from ..interconnect import COMPRESSIBLE_TOS
from .gradient import Gradient, GradientMessage
from .nic import Nic


class Outlet(Protocol):
    """Destination of messages to another worker."""

    def put(self, message: GradientMessage) -> None:
        """Send without waiting."""


class Child(NamedTuple):
    """A node that receives messages, the number of latencies to it, and among how many messages they share a link."""

    outlet: Outlet
    hops: int
    share: int = 1


class Parent(NamedTuple):
    """A node that sends messages, and the number of latencies from it."""

    mailbox: Mailbox
    hops: int


class Broadcast:
    """One node's step; the root has no parent. Messages are sent with ToS `tos`."""

    def __init__(
        self, nic: Nic, parent: Parent | None, children: Sequence[Child], tos: int, residual: Gradient | None = None
    ) -> None:
        self._nic, self._parent, self._children, self._tos, self._residual = nic, parent, children, tos, residual

    async def run(self, gradient: Gradient, ready_ps: int) -> int:
        """Take the values from the parent, if there is one, and pass them on; return the end in ps."""
        latency_ps = self._nic.interconnect.latency_ps
        if self._parent is not None:
            message: GradientMessage = await self._parent.mailbox.get()
            gradient.put(self._nic.open(message, gradient.count))
            ready_ps = max(ready_ps, message.ready_ps + message.transfer_ps + self._parent.hops * latency_ps)
        if self._children:
            message = self._nic.pack(gradient, self._tos, copies=len(self._children), residual=self._residual)
            if self._parent is None:
                self._nic.round(gradient, message)
            for outlet, hops, share in self._children:
                sent = dataclasses.replace(message, ready_ps=ready_ps, transfer_ps=message.transfer_ps * share)
                outlet.put(sent)
                ready_ps += sent.transfer_ps + hops * latency_ps
        return ready_ps


class GradientUpload:
    """One worker's step: its gradient goes to the aggregator. A broadcast follows."""

    def __init__(self, nic: Nic, up: Outlet, residual: Gradient | None = None) -> None:
        self._nic, self._up, self._residual = nic, up, residual

    async def run(self, gradient: Gradient, ready_ps: int) -> int:
        """Send the gradient; return the time at which it was ready, in ps."""
        message = self._nic.pack(gradient, COMPRESSIBLE_TOS, residual=self._residual)
        self._up.put(dataclasses.replace(message, ready_ps=ready_ps))
        return ready_ps


class Aggregator:
    """The node that sums gradients of `count` values from all workers, and broadcasts the sum."""

    def __init__(self, nic: Nic, count: int, with_data: bool, workers: Sequence[Parent], broadcast: Broadcast) -> None:
        self._nic, self._count, self._with_data = nic, count, with_data
        self._workers, self._broadcast = workers, broadcast
        self._done_ps = 0

    async def serve(self, steps: int) -> None:
        """Carry out the exchanges of `steps` mini-batches."""
        for _ in range(steps):
            await self._serve_one()

    async def _serve_one(self) -> None:
        interconnect, free_ps = self._nic.interconnect, self._done_ps
        total = Gradient(self._count, np.zeros(self._count, np.float32) if self._with_data else None)
        for place, (mailbox, hops) in enumerate(self._workers):
            message: GradientMessage = await mailbox.get()
            free_ps = max(free_ps, message.ready_ps + hops * interconnect.latency_ps) + message.transfer_ps
            values = self._nic.open(message, self._count)
            if place == 0:
                total.put(values)
            else:
                total.add(values)
                free_ps += interconnect.sum_ps(total.bytes)
        self._done_ps = await self._broadcast.run(total, free_ps)

    def state(self) -> int:
        """Return the training state."""
        return self._done_ps

    def restore(self, state: int) -> None:
        """Restore what `state` returned."""
        self._done_ps = state
