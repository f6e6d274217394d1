"""Broadcast down a binomial tree: in each round, nodes that have the message send it to half of the nodes behind them.

New weights go this way from the aggregator to its workers, and in hierarchies the total from a group's leader to its
members. `broadcast_rounds` gives the senders and receivers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ..host import Mailbox
from .gradient import Gradient
from .message import GradientMessage
from .nic import Nic


class Outlet(Protocol):
    """Destination of messages to another worker."""

    def put(self, message: GradientMessage) -> None:
        """Send without waiting."""


class Child(NamedTuple):
    """A node that receives messages, and the number of latencies to it."""

    outlet: Outlet
    hops: int


class Parent(NamedTuple):
    """A node that sends messages, and the number of latencies from it."""

    mailbox: Mailbox
    hops: int


class Broadcast:
    """One node's step; the root has no parent. Messages are sent with ToS `tos`."""

    def __init__(self, nic: Nic, parent: Parent | None, children: Sequence[Child], tos: int) -> None:
        self._nic, self._parent, self._children, self._tos = nic, parent, children, tos

    async def run(self, gradient: Gradient, ready_ps: int) -> int:
        """Take the values from the parent, if there is one, and pass them on; return the end in ps."""
        latency_ps = self._nic.interconnect.latency_ps
        if self._parent is not None:
            message: GradientMessage = await self._parent.mailbox.get()
            gradient.put(self._nic.open(message, gradient.count))
            ready_ps = max(ready_ps, message.ready_ps + message.transfer_ps + self._parent.hops * latency_ps)
        if self._children:
            message = self._nic.pack(gradient, self._tos, copies=len(self._children))
            if self._parent is None:
                self._nic.round(gradient, message)
            for outlet, hops in self._children:
                outlet.put(dataclasses.replace(message, ready_ps=ready_ps))
                ready_ps += message.transfer_ps + hops * latency_ps
        return ready_ps
