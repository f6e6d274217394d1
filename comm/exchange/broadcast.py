"""Broadcast down a binomial tree: in each round whoever has the message hands it on, and half of those behind with it.

New weights go from the aggregator to its workers so, and in hierarchies the total from a group's leader to its members.
`exchange_time.broadcast_rounds` says who sends to whom.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ..host import Mailbox
from .gradient import Gradient
from .message import Parcel
from .nic import Port


class Outlet(Protocol):
    """Where a parcel is left for another worker."""

    def put(self, parcel: Parcel) -> None:
        """Send without waiting."""


class Below(NamedTuple):
    """One to whom a node sends, and how many latencies away."""

    outlet: Outlet
    hops: int


class Above(NamedTuple):
    """Who sends to a node, and how many latencies away."""

    mailbox: Mailbox
    hops: int


class Broadcast:
    """One node's part; the root has nobody above. What it sends has this ToS."""

    def __init__(self, port: Port, above: Above | None, below: Sequence[Below], tos: int) -> None:
        self._port, self._above, self._below, self._tos = port, above, below, tos

    async def run(self, gradient: Gradient, ready_ps: int) -> int:
        """Take the values from above, if there is somebody, and pass them on; when that is done."""
        latency_ps = self._port.network.latency_ps
        if self._above is not None:
            came: Parcel = await self._above.mailbox.get()
            gradient.put(self._port.open(came, gradient.count))
            ready_ps = max(ready_ps, came.ready_ps + came.transfer_ps + self._above.hops * latency_ps)
        if self._below:
            parcel = self._port.parcel(gradient, self._tos, copies=len(self._below))
            if self._above is None:
                self._port.round(gradient, parcel)
            for outlet, hops in self._below:
                outlet.put(dataclasses.replace(parcel, ready_ps=ready_ps))
                ready_ps += parcel.transfer_ps + hops * latency_ps
        return ready_ps
