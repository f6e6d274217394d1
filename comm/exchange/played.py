"""A node's part in a collective, by messages of its NIC: the same numbers and picoseconds as
`comm.collective` has for all nodes at once.

In each round a node first sends what it has, then takes what comes, in the order of the steps. What
it sends to be added is compressed with what the codec dropped before; of a sum that it has formed
itself it keeps what others decode, so that all replicas stay equal; sums that it has received have
been through the codec, and lose nothing more. Sums that several nodes form of the same values, as
recursive doubling does, would differ by the codec's losses (`sums_once`).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..collective import LaidPhase, Phase, Step, piece_bounds
from ..collective.player import NodeTimes
from ..host import Mailbox
from ..interconnect import COMPRESSIBLE_TOS, Interconnect
from .nic import ORDINARY_TOS, Gradient, GradientMessage, Nic


class Outlet(Protocol):
    """Destination of messages to another node."""

    def put(self, message: GradientMessage) -> None:
        """Send without waiting."""


def sums_once(phases: Sequence[Phase], nodes: int) -> bool:
    """Return whether each sum is formed at one node in the end, and stored at all others."""
    pieces = math.lcm(*(phase.pieces for phase in phases))
    formed = np.ones((nodes, pieces), np.bool_)
    for phase in phases:
        ratio = pieces // phase.pieces
        for step in itertools.chain(*phase.rounds):
            formed[step.receiver, step.first * ratio : step.stop * ratio] = step.adds
    return bool((formed.sum(axis=0) <= 1).all())


@dataclasses.dataclass(eq=False)
class _Own:
    """A step of a node, among how many its message shares a link, and how often that is sent; 0
    where it is that of the `original`.
    """

    step: Step
    share: int
    copies: int = 0
    original: _Own | None = None

    @property
    def pieces(self) -> tuple[int, int]:
        """The first piece, and the one behind the last."""
        return self.step.first, self.step.stop


class PlayedPart:
    """A node's part in a phase; `residual` keeps what the codec drops of its messages."""

    def __init__(
        self,
        node: int,
        laid: LaidPhase,
        nic: Nic,
        outlets: Mapping[int, Outlet],
        mailboxes: Mapping[int, Mailbox],
        residual: Gradient | None = None,
    ) -> None:
        self._node, (self._phase, shared), self._nic = node, laid, nic
        self._outlets, self._mailboxes, self._residual = outlets, mailboxes, residual
        self._rounds = [
            [_Own(*own) for own in zip(steps, shares, strict=True) if node in own[0][:2]]
            for steps, shares in zip(self._phase.rounds, shared, strict=True)
        ]
        self._count_copies()

    @property
    def of_weights(self) -> bool:
        """Whether what it carries stands for weights."""
        return self._phase.of_weights

    def sent_values(self, count: int) -> int:
        """Return how many values the node sends of a row of `count`."""
        bounds = piece_bounds(count, self._phase.pieces)
        steps = (own.step for own_steps in self._rounds for own in own_steps)
        own = (step for step in steps if step.sender == self._node)
        return sum(bounds[step.stop] - bounds[step.first] for step in own)

    def _count_copies(self) -> None:
        """Count how often each message is sent: once more while its pieces stay the same."""
        first: dict[tuple[int, int], _Own] = {}
        for own_steps in self._rounds:
            for own in own_steps:
                if own.step.sender == self._node:
                    original = first.setdefault(own.pieces, own)
                    original.copies += 1
                    own.original = original
            for own in own_steps:
                if own.step.receiver == self._node:
                    begin, end = own.pieces
                    for pieces in [key for key in first if key[0] < end and begin < key[1]]:
                        del first[pieces]

    async def run(self, gradient: Gradient, times: NodeTimes) -> None:
        """Take part, in place, at the times of the node."""
        pieces = self._phase.pieces
        bounds = piece_bounds(gradient.count, pieces)
        times.begin(pieces)
        # Pieces that it has been sent, or keeps as others decode them.
        stored = np.zeros(pieces, np.bool_)

        def part_of(step: Step, row: Gradient) -> Gradient:
            return row.between(bounds[step.first], bounds[step.stop])

        packed: dict[int, GradientMessage] = {}
        for own_steps in self._rounds:
            for own in own_steps:
                step, part = own.step, part_of(own.step, gradient)
                if step.sender != self._node:
                    continue
                if own.copies:
                    held = stored[step.first : step.stop]
                    residual = None
                    if self._residual is not None and not held.any():
                        residual = part_of(step, self._residual)
                    packed[id(own)] = self._packed(own, part, held, residual)
                message = packed[id(own.original)]
                begin_ps, taken_ps = times.send(step, part.bytes, own.share * message.transfer_ps)
                sent = dataclasses.replace(message, ready_ps=begin_ps, transfer_ps=taken_ps)
                self._outlets[step.receiver].put(sent)
            for own in own_steps:
                step, part = own.step, part_of(own.step, gradient)
                if step.receiver != self._node:
                    continue
                came: GradientMessage = await self._mailboxes[step.sender].get()
                times.receive(step, part.bytes, came.ready_ps, came.transfer_ps)
                values = self._nic.open(came, part.count)
                if step.adds:
                    part.add(values)
                else:
                    part.put(values)
                stored[step.first : step.stop] = not step.adds
            times.end_round()

    def _packed(
        self, own: _Own, part: Gradient, held: NDArray[np.bool_], residual: Gradient | None
    ) -> GradientMessage:
        """Return a step's message; of a sum of its own the node keeps what others decode."""
        tos = ORDINARY_TOS if self._phase.of_weights else COMPRESSIBLE_TOS
        message = self._nic.pack(part, tos, own.copies, residual)
        if not own.step.adds and not held.any():
            self._nic.round(part, message)
            held[...] = True
        return message


class PlayedNode:
    """A node beside the replicas, which keeps no gradient: `parts` of it, of `count` values."""

    def __init__(
        self, count: int, with_data: bool, interconnect: Interconnect, parts: Sequence[PlayedPart]
    ) -> None:
        self._count, self._with_data, self._parts, self._done_ps = count, with_data, parts, 0
        self._over = interconnect

    async def serve(self, steps: int) -> None:
        """Carry out the exchanges of `steps` mini-batches."""
        for _ in range(steps):
            values = np.zeros(self._count, np.float32) if self._with_data else None
            times = NodeTimes(self._over, self._done_ps)
            for part in self._parts:
                await part.run(Gradient(self._count, values), times)
            self._done_ps = times.end_ps

    def state(self) -> int:
        """Return the training state."""
        return self._done_ps

    def restore(self, state: int) -> None:
        """Restore what `state` returned."""
        self._done_ps = state
