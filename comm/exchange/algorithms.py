"""How workers sum a gradient: by a ring (INCEPTIONN, Algorithm 1), or by an aggregator and a
broadcast (section II-B).

The ring: every worker exchanges blocks with two neighbours, and there is no aggregator. N workers
cut their gradients into N blocks. In N - 1 steps (P1, aggregation) each sends the block that it has
just summed to the right, and adds what arrives from the left to its own; then it owns the full sum
of one block. In N - 1 more (P2, propagation) the full sums go round. Each block's sum begins at the
worker with its number, and continues in the order of the ring. Partial sums are compressed again at
every hop, as by NICs. The block that each of 4 workers sends:

    step        1  2  3  |  4  5  6
    worker 0    0  3  2  |  1  0  3       P1: block 0 goes from 0 by 1 and 2 to 3, which owns its sum
    worker 1    1  0  3  |  2  1  0
    worker 2    2  1  0  |  3  2  1       P2: the sum of block 0 goes from 3 by 0 and 1 to 2
    worker 3    3  2  1  |  0  3  2

As printed, the second phase is off by one and would lose data: the worked example requires that in
step s worker i sends block i - s + 1 and receives block i - s (mod N). The owner of a block keeps
the values that receivers decode; the paper does not mention this, and its workers would drift apart
by the codec's losses.

Up to the first step of P2 a worker sends each block once with losses, so error feedback keeps one
row of them; what is passed on after that has been through the codec, and loses nothing more.

The aggregator, the baseline: all gradients go to one node, new weights back to all. It receives one
gradient after another through its one link, in the order of the workers, and adds each. The reply
is not compressed, since it represents weights: the sum is sent in their place, at their size, and
every worker computes from it the weights that the aggregator would have computed. The reply goes
down a binomial tree: in each round, nodes that have the message send it to half of the nodes behind
them; in hierarchies the total goes the same way from a group's leader to its members.
`broadcast_rounds` gives the senders and receivers; of 8 nodes:

    round 1    0 ----------> 4
    round 2    0 ----> 2     4 ----> 6
    round 3    0 > 1   2 > 3 4 > 5   6 > 7
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from ..host import Mailbox
from ..interconnect import COMPRESSIBLE_TOS
from .nic import Gradient, GradientMessage, Nic
from .time import after_step, ring_steps, sent_block


class Outlet(Protocol):
    """Destination of messages to another worker."""

    def put(self, message: GradientMessage) -> None:
        """Send without waiting."""


class Child(NamedTuple):
    """A node that receives messages, the number of latencies to it, and among how many messages
    they share a link.
    """

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
        self,
        nic: Nic,
        parent: Parent | None,
        children: Sequence[Child],
        tos: int,
        residual: Gradient | None = None,
    ) -> None:
        self._nic, self._parent, self._children, self._tos, self._residual = (
            nic,
            parent,
            children,
            tos,
            residual,
        )

    async def run(self, gradient: Gradient, ready_ps: int) -> int:
        """Take the values from the parent, if there is one, and pass them on; return the end in ps."""
        latency_ps = self._nic.interconnect.latency_ps
        if self._parent is not None:
            message: GradientMessage = await self._parent.mailbox.get()
            gradient.put(self._nic.open(message, gradient.count))
            ready_ps = max(
                ready_ps, message.ready_ps + message.transfer_ps + self._parent.hops * latency_ps
            )
        if self._children:
            # One packing for all children: the residual is added, and takes in the losses, once.
            message = self._nic.pack(
                gradient, self._tos, copies=len(self._children), residual=self._residual
            )
            if self._parent is None:
                # The root alone still has values from before the codec; others pass on what they
                # have decoded.
                self._nic.round(gradient, message)
            for outlet, hops, share in self._children:
                sent = dataclasses.replace(
                    message, ready_ps=ready_ps, transfer_ps=message.transfer_ps * share
                )
                outlet.put(sent)
                # The next round begins once this message has arrived, a latency later: L alpha + L
                # n beta, as `time.py` has it.
                ready_ps += sent.transfer_ps + hops * latency_ps
        return ready_ps


class GradientUpload:
    """One worker's step: its gradient goes to the aggregator. A broadcast follows."""

    def __init__(self, nic: Nic, up: Outlet, residual: Gradient | None = None) -> None:
        self._nic, self._up, self._residual = nic, up, residual

    async def run(self, gradient: Gradient, ready_ps: int) -> int:
        """Send the gradient; return the time at which it was ready, in ps."""
        message = self._nic.pack(gradient, COMPRESSIBLE_TOS, residual=self._residual)
        # Only the reply holds the worker up: the broadcast that follows waits for it.
        self._up.put(dataclasses.replace(message, ready_ps=ready_ps))
        return ready_ps


class Aggregator:
    """The node that sums gradients of `count` values from all workers, and broadcasts the sum."""

    def __init__(
        self, nic: Nic, count: int, with_data: bool, workers: Sequence[Parent], broadcast: Broadcast
    ) -> None:
        self._nic, self._count, self._with_data = nic, count, with_data
        self._workers, self._broadcast = workers, broadcast
        self._done_ps = 0

    async def serve(self, steps: int) -> None:
        """Carry out the exchanges of `steps` mini-batches."""
        for _ in range(steps):
            await self._serve_one()

    async def _serve_one(self) -> None:
        # The aggregator has one link: gradients of the next mini-batch wait until this reply is
        # sent.
        interconnect, free_ps = self._nic.interconnect, self._done_ps
        # Gradients that come early wait, so that the sum has the same bits whoever is first:
        #
        #     worker 0   ready ....[transfer]
        #     worker 1   ready             [transfer][sum]
        #     worker 2         ready                      [transfer][sum] -> broadcast
        #
        # The first is put in place without a sum, which leaves (p - 1) n gamma.
        total = Gradient(
            self._count, np.zeros(self._count, np.float32) if self._with_data else None
        )
        for place, (mailbox, hops) in enumerate(self._workers):
            message: GradientMessage = await mailbox.get()
            free_ps = (
                max(free_ps, message.ready_ps + hops * interconnect.latency_ps)
                + message.transfer_ps
            )
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


class Ring:
    """One worker's step: the worker at a place (0 … size - 1) of the ring; `hops` links lead to it
    from the left.

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
            # What is passed on after the first step of P2 has been through the codec, and loses
            # nothing more.
            residual = (
                None
                if self._residual is None or step > size
                else self._residual.block(number, size)
            )
            received = gradient.block(sent_block(self._place - 1, step, size), size)
            packed = self._nic.pack(sent, COMPRESSIBLE_TOS, residual=residual)
            # Each of the messages on a link has an equal part of its bandwidth.
            own = dataclasses.replace(
                packed, ready_ps=ready_ps, transfer_ps=packed.transfer_ps * self._share
            )
            if (
                step == size
            ):  # the owner of a sum keeps what all others decode, or workers would drift apart
                self._nic.round(sent, own)
            # Sent before the left one is awaited: if all waited first, no step would ever begin.
            self._right.put(own)
            left: GradientMessage = await self._left.get()
            ready_ps = after_step(
                interconnect, ready_ps, own.transfer_ps, left.ready_ps, left.transfer_ps, self._hops
            )
            if step < size:
                received.add(self._nic.open(left, received.count))
                ready_ps += interconnect.sum_ps(received.bytes)
            else:
                received.put(self._nic.open(left, received.count))
        return ready_ps
