"""The worker-aggregator baseline (INCEPTIONN, section II-B): all gradients to one node, new weights back to all.

The aggregator takes one gradient after another through its one link, in the order of the workers, and adds each. What
goes back is not compressed, for it stands for weights: the sum travels in their place, at their size, and every worker
makes of it the weights that the aggregator would have made.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from ..interconnect import COMPRESSIBLE_TOS
from .broadcast import Above, Broadcast, Outlet
from .gradient import Gradient
from .message import Parcel
from .nic import Port


class Report:
    """One worker's part: its gradient goes to the aggregator. A broadcast follows."""

    def __init__(self, port: Port, up: Outlet) -> None:
        self._port, self._up = port, up

    async def run(self, gradient: Gradient, ready_ps: int) -> int:
        """Send a gradient; when it was ready."""
        parcel = self._port.parcel(gradient, COMPRESSIBLE_TOS)
        self._up.put(dataclasses.replace(parcel, ready_ps=ready_ps))
        return ready_ps


class Aggregator:
    """The node that sums what all workers send, gradients of so many values, and broadcasts it."""

    def __init__(self, port: Port, count: int, with_data: bool, workers: Sequence[Above], broadcast: Broadcast) -> None:
        self._port, self._count, self._with_data = port, count, with_data
        self._workers, self._broadcast = workers, broadcast
        self._done_ps = 0

    async def serve(self, steps: int) -> None:
        """Do so many exchanges."""
        for _ in range(steps):
            await self._serve_one()

    async def _serve_one(self) -> None:
        network, free_ps = self._port.network, self._done_ps
        total = Gradient(self._count, np.zeros(self._count, np.float32) if self._with_data else None)
        for place, (mailbox, hops) in enumerate(self._workers):
            came: Parcel = await mailbox.get()
            free_ps = max(free_ps, came.ready_ps + hops * network.latency_ps) + came.transfer_ps
            values = self._port.open(came, self._count)
            if place == 0:
                total.put(values)
            else:
                total.add(values)
                free_ps += network.sum_ps(total.bytes)
        self._done_ps = await self._broadcast.run(total, free_ps)
