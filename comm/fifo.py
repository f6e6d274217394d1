"""Virtual clocks: FIFO resources, which serve rows in order, one after the other.

Times are int64 picoseconds, in arrays of shape (samples, rows). An engine and a data path on a link
behave alike: a row starts when it is ready and the previous row has left, and leaves a fixed time
later. A link adds its latency.

Each resource has a name and can be observed: `observer` is called with what it has served. Without
an observer nothing is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..kernels import serve

Times = NDArray[np.int64]


class Served(NamedTuple):
    """Rows that a resource has served at once: when each was ready and when it left, (samples,
    rows), in ps.

    Each row occupied the resource for `row_ps` up to `left_ps`, and had this share of its full
    bytes.
    """

    resource: str
    ready_ps: Times
    left_ps: Times
    row_ps: int
    share: float = 1.0


Observer = Callable[[Served], None]


class FifoResource:
    """Serves rows in order: each takes `row_ps`, and arrives `latency_ps` after it has left.

    `header_ps` of them are headers', which compression leaves as they are.
    Counters: `served_rows`; `spared_rows`, those rows' worth of bytes that compression saved;
    `busy_ps`.
    """

    def __init__(self, name: str, row_ps: int, latency_ps: int = 0, header_ps: int = 0) -> None:
        self.name = name
        self.row_ps = row_ps
        self.latency_ps = latency_ps
        self.header_ps = header_ps
        self.free_ps = 0
        self.served_rows = 0
        self.busy_ps = 0
        self.spared_rows = 0.0
        self.observer: Observer | None = None
        self._share = 1.0
        self._full_row_ps = row_ps

    def serve(self, ready: Times) -> Times:
        """Return when each row of `ready` (samples, rows) arrives, in ps."""
        if ready.size == 0:
            return ready
        # The recurrence: left[i] = max(left[i - 1], ready[i]) + row_ps.
        left = serve(np.ascontiguousarray(ready), self.row_ps, self.free_ps)
        self.free_ps = int(left[-1, -1])
        self.served_rows += ready.size
        self.spared_rows += ready.size * (1 - self._share)
        self.busy_ps += ready.size * self.row_ps
        # Without the latency: observers want to know when the resource was occupied.
        if self.observer is not None:
            self.observer(Served(self.name, ready, left, self.row_ps, self._share))
        return left + self.latency_ps if self.latency_ps else left

    def first_starts(self, left: Times) -> Times:
        """Return when each sample that was served last started its first row, given when its rows
        left, in ps.
        """
        return left[:, 0] - self.row_ps

    def shrink(self, share: float) -> None:
        """Reduce further rows to this share of their full bytes, and of the time that these
        take.
        """
        # Always from the full time, so that a share replaces the one before it. A part of a
        # picosecond counts as one: no row is faster than the link.
        self._share = share
        self.row_ps = self.header_ps + math.ceil((self._full_row_ps - self.header_ps) * share)

    def state(self) -> dict[str, Any]:
        """Return the training state."""
        counters = {
            name: getattr(self, name)
            for name in ("free_ps", "served_rows", "busy_ps", "spared_rows")
        }
        return {**counters, "share": self._share}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        # `row_ps` is not in the state: it follows from the share.
        self.shrink(state["share"])
        for name in ("free_ps", "served_rows", "busy_ps", "spared_rows"):
            setattr(self, name, state[name])
