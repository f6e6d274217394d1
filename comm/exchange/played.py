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

import numpy as np
from numpy.typing import NDArray

from ..collective import Phase, Step, piece_bounds
from ..collective.player import NodeTimes, message_shares
from ..host import Mailbox
from ..interconnect import COMPRESSIBLE_TOS
from .algorithms import Outlet
from .nic import ORDINARY_TOS, Gradient, GradientMessage, Nic


def sums_once(phases: Sequence[Phase], nodes: int) -> bool:
    """Return whether each sum is formed at one node in the end, and stored at all others."""
    pieces = math.lcm(*(phase.pieces for phase in phases))
    formed = np.ones((nodes, pieces), np.bool_)
    for phase in phases:
        each = pieces // phase.pieces
        for step in itertools.chain(*phase.rounds):
            formed[step.receiver, step.first * each : step.stop * each] = step.adds
    return bool((formed.sum(axis=0) <= 1).all())


class PlayedPart:
    """A node's part in a phase; `residual` keeps what the codec drops of its messages."""

    def __init__(
        self,
        node: int,
        phase: Phase,
        nic: Nic,
        outlets: Mapping[int, Outlet],
        mailboxes: Mapping[int, Mailbox],
        residual: Gradient | None = None,
    ) -> None:
        self._node, self._phase, self._nic = node, phase, nic
        self._outlets, self._mailboxes, self._residual = outlets, mailboxes, residual
        topology = nic.interconnect.topology
        own = []
        for steps in phase.rounds:
            shares = message_shares(topology, steps)
            own.append(
                [
                    (step, share)
                    for step, share in zip(steps, shares, strict=True)
                    if node in (step.sender, step.receiver)
                ]
            )
        self._rounds: list[list[tuple[Step, int]]] = own

    async def run(self, gradient: Gradient, ready_ps: int) -> int:
        """Take part, in place; return the finish time in ps."""
        pieces = self._phase.pieces
        bounds = piece_bounds(gradient.count, pieces)
        times = NodeTimes(self._nic.interconnect, ready_ps)
        times.begin(pieces)
        # Pieces that it has been sent, or keeps as others decode them.
        stored = np.zeros(pieces, np.bool_)

        def part_of(step: Step, row: Gradient) -> Gradient:
            return row.between(bounds[step.first], bounds[step.stop])

        for steps in self._rounds:
            for step, share in steps:
                if step.sender == self._node:
                    held = stored[step.first : step.stop]
                    residual = self._residual
                    if residual is not None:
                        residual = None if held.any() else part_of(step, residual)
                    message = self._packed(step, part_of(step, gradient), held, residual)
                    size = part_of(step, gradient).bytes
                    begin_ps, taken_ps = times.send(step, size, share * message.transfer_ps)
                    self._outlets[step.receiver].put(
                        dataclasses.replace(message, ready_ps=begin_ps, transfer_ps=taken_ps)
                    )
            for step, _ in steps:
                if step.receiver == self._node:
                    came: GradientMessage = await self._mailboxes[step.sender].get()
                    part = part_of(step, gradient)
                    times.receive(step, part.bytes, came.ready_ps, came.transfer_ps)
                    values = self._nic.open(came, part.count)
                    if step.adds:
                        part.add(values)
                    else:
                        part.put(values)
                    stored[step.first : step.stop] = not step.adds
            times.end_round()
        return times.end_ps

    def _packed(
        self, step: Step, part: Gradient, held: NDArray[np.bool_], residual: Gradient | None
    ) -> GradientMessage:
        """Return a step's message; of a sum of its own it keeps what others decode."""
        tos = ORDINARY_TOS if self._phase.of_weights else COMPRESSIBLE_TOS
        message = self._nic.pack(part, tos, residual=residual)
        if not step.adds and not held.any():
            self._nic.round(part, message)
            held[...] = True
        return message


class PlayedNode:
    """A node beside the replicas, which keeps no gradient: `parts` of it, of `count` values."""

    def __init__(self, count: int, with_data: bool, parts: Sequence[PlayedPart]) -> None:
        self._count, self._with_data, self._parts, self._done_ps = count, with_data, parts, 0

    async def serve(self, steps: int) -> None:
        """Carry out the exchanges of `steps` mini-batches."""
        for _ in range(steps):
            values = np.zeros(self._count, np.float32) if self._with_data else None
            for part in self._parts:
                self._done_ps = await part.run(Gradient(self._count, values), self._done_ps)

    def state(self) -> int:
        """Return the training state."""
        return self._done_ps

    def restore(self, state: int) -> None:
        """Restore what `state` returned."""
        self._done_ps = state
