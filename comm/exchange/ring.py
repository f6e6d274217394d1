"""The ring: every worker exchanges blocks with two neighbours, and there is no aggregator (INCEPTIONN, Algorithm 1).

N workers cut their gradients into N blocks. In N - 1 steps (P1, aggregation) each sends the block that it has just
summed to the right, and adds what arrives from the left to its own; then it owns the full sum of one block. In N - 1
more (P2, propagation) the full sums go round. Each block's sum begins at the worker with its number, and continues in
the order of the ring. Partial sums are compressed again at every hop, as by NICs.

As printed, the second phase is off by one and would lose data: the worked example requires that in step s worker i
sends block i - s + 1 and receives block i - s (mod N). The owner of a block keeps the values that receivers decode; the
paper does not mention this, and its workers would drift apart by the codec's losses.

Up to the first step of P2 a worker sends each block once with losses, so error feedback keeps one row of them; what is
passed on after that has been through the codec, and loses nothing more.
"""

from __future__ import annotations

import dataclasses

from ..host import Mailbox
from ..interconnect import COMPRESSIBLE_TOS
from .aggregator import Outlet
from .gradient import Gradient, GradientMessage
from .nic import Nic
from .time import after_step, ring_steps, sent_block


class Ring:
    """One worker's step: the worker at a place (0 … size - 1) of the ring; `hops` links lead to it from the left.

    Its own messages are among `share` that share a link.
    """

    def __init__(
        self,
        place: int,
        size: int,
        nic: Nic,
        left: Mailbox,
        right: Outlet,
        hops: int,
        residual: Gradient | None = None,
        share: int = 1,
    ) -> None:
        self._place, self._size, self._nic, self._share = place, size, nic, share
        self._left, self._right, self._hops, self._residual = left, right, hops, residual

    async def run(self, gradient: Gradient, ready_ps: int) -> int:
        """Sum a gradient over all workers, in place; return the finish time in ps."""
        interconnect, size = self._nic.interconnect, self._size
        for step in ring_steps(size):
            number = sent_block(self._place, step, size)
            sent = gradient.block(number, size)
            residual = None if self._residual is None or step > size else self._residual.block(number, size)
            received = gradient.block(sent_block(self._place - 1, step, size), size)
            packed = self._nic.pack(sent, COMPRESSIBLE_TOS, residual=residual)
            own = dataclasses.replace(packed, ready_ps=ready_ps, transfer_ps=packed.transfer_ps * self._share)
            if step == size:
                self._nic.round(sent, own)
            self._right.put(own)
            left: GradientMessage = await self._left.get()
            ready_ps = after_step(interconnect, ready_ps, own.transfer_ps, left.ready_ps, left.transfer_ps, self._hops)
            if step < size:
                received.add(self._nic.open(left, received.count))
                ready_ps += interconnect.sum_ps(received.bytes)
            else:
                received.put(self._nic.open(left, received.count))
        return ready_ps
