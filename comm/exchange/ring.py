"""The ring: every worker exchanges blocks with two neighbours, and there is no aggregator (INCEPTIONN, Algorithm 1).

N workers cut their gradients into N blocks. In N - 1 steps (P1, aggregation) each sends the block that it has just
summed to the right, and adds what comes from the left to its own; then it owns the full sum of one block. In N - 1 more
(P2, propagation) the full blocks go around. Each block's sum begins at the worker of its number, and goes on in the
order of the ring. Partial sums are compressed anew at every hop, as NICs do it.

Printed, the second phase is off by one and would lose data: what fits the worked example is that in every step worker i
sends block i - s + 1 and receives block i - s (mod N). The owner of a block takes the values that it sends; the paper
is silent here, and its workers would drift apart by what the codec leaves out.
"""

from __future__ import annotations

import dataclasses

from ..host import Mailbox
from ..interconnect import COMPRESSIBLE_TOS
from .broadcast import Outlet
from .gradient import Gradient
from .message import Parcel
from .nic import Port
from .time import after_step, ring_steps, sent_block


class Ring:
    """One worker's part: the one at a place (0 … size - 1) of the ring; `hops` links lead to it from the left."""

    def __init__(self, place: int, size: int, port: Port, left: Mailbox, right: Outlet, hops: int) -> None:
        self._place, self._size, self._port = place, size, port
        self._left, self._right, self._hops = left, right, hops

    async def run(self, gradient: Gradient, ready_ps: int) -> int:
        """Sum a gradient over all workers, in place; when that is done."""
        network, size = self._port.network, self._size
        for step in ring_steps(size):
            sent = gradient.block(sent_block(self._place, step, size), size)
            due = gradient.block(sent_block(self._place - 1, step, size), size)
            parcel = dataclasses.replace(self._port.parcel(sent, COMPRESSIBLE_TOS), ready_ps=ready_ps)
            if step == size:
                self._port.round(sent, parcel)
            self._right.put(parcel)
            came: Parcel = await self._left.get()
            ready_ps = after_step(network, ready_ps, parcel.transfer_ps, came.ready_ps, came.transfer_ps, self._hops)
            if step < size:
                due.add(self._port.open(came, due.count))
                ready_ps += network.sum_ps(due.bytes)
            else:
                due.put(self._port.open(came, due.count))
        return ready_ps
