"""The virtual time of what crosses the chain once a mini-batch: gradients of tied weights, and the norm of gradients.

A device begins to pass on a symbol's row when it has arrived, and, if the device adds a part of its own, when all its
gradients of the mini-batch are there. Rows follow one another on each link, which is theirs alone: other streams are
not slowed. All rows of a table are as long, so the first and the last say when each arrives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ...comm import FifoResource, Served, Times
from ..cluster import Link
from ..mapping import Crossing, StreamKey, TiedWeights


class Burst(FifoResource):
    """A direction of a link, for the rows of a table: times are (1, 2), those of the first and of the last row."""

    def __init__(self, name: str, crossing: Crossing, link: Link) -> None:
        super().__init__(name, link.transfer_ps(crossing.row_bytes), link.latency_ps)
        self._rows = crossing.rows

    @property
    def table_ps(self) -> int:
        """Time in ps of all rows, without latency."""
        return self._rows * self.row_ps

    def serve(self, ready: Times) -> Times:
        """Return when the first and the last row arrive, in ps, given when they are ready."""
        [[first_ps, last_ps]] = ready.tolist()
        begin_ps = max(first_ps, self.free_ps)
        left_ps = max(last_ps, begin_ps + (self._rows - 1) * self.row_ps) + self.row_ps
        self.free_ps = left_ps
        self.served_rows += self._rows
        self.busy_ps += self.table_ps
        if self.observer is not None:
            self.observer(Served(self.name, np.array([[begin_ps]]), np.array([[left_ps]]), left_ps - begin_ps))
        arrives_ps = np.array([[begin_ps + self.row_ps, left_ps]], np.int64)
        return arrives_ps + self.latency_ps


Bursts = Mapping[StreamKey, Burst]
"""What a device sends before an update, by stream; hops that take no time are left out."""


class TiedHop(NamedTuple):
    """A device's part in a direction of an exchange: when the first and the last row come, and are at the next one."""

    came_ps: Times
    sends_ps: Times


def hop(bursts: Bursts, key: StreamKey, came_ps: Times | None, ready_ps: Times | int | None) -> TiedHop:
    """Return what a device makes of what came in a direction; a part that it adds, if it does, is at `ready_ps`."""
    came = np.zeros((1, 2), np.int64) if came_ps is None else came_ps
    times = came if ready_ps is None else np.maximum(came, ready_ps)
    return TiedHop(came, bursts[key].serve(times) if key in bursts else times)


def crossed_ps(tied: TiedWeights, bursts: Sequence[Bursts], ready_ps: Sequence[int]) -> dict[int, int]:
    """Return by device when gradients of tied weights come from others, 0 if none do; own ones are at `ready_ps`."""
    crossed = dict.fromkeys(range(tied.first, tied.last + 1), 0)
    for forward in (True, False):
        came_ps: Times | None = None
        for device in sorted(crossed, reverse=not forward):
            adds, needs = tied.has_embedding(device), tied.has_head(device)
            if not forward:
                adds, needs = needs, adds
            made = hop(bursts[device], tied.key(forward=forward), came_ps, ready_ps[device] if adds else None)
            if needs:
                crossed[device] = max(crossed[device], int(made.came_ps[0, 1]))
            came_ps = made.sends_ps
    return crossed
