"""Virtual clocks: servers that take rows in order, one after the other.

Times are int64 picoseconds, in arrays of shape (samples, rows). An engine and a data path on a link behave alike: a row
is taken when it is ready and the one before it is done, and is done a fixed time later. A link adds its latency.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..kernels.fifo import serve

Times = NDArray[np.int64]


class Server:
    """Takes rows in order; `row_ps` each, `latency_ps` more until the row is where it goes.

    It has been busy for `busy_ps` with `served_rows`; of these `spared_rows`, in all, did not have to be carried.
    """

    def __init__(self, row_ps: int, latency_ps: int = 0) -> None:
        self.row_ps = row_ps
        self.latency_ps = latency_ps
        self.free_ps = 0
        self.served_rows = 0
        self.busy_ps = 0
        self.spared_rows = 0.0
        self.share = 1.0
        self._whole_row_ps = row_ps

    def serve(self, ready: Times) -> Times:
        """When each row of `ready` (samples, rows) arrives."""
        if ready.size == 0:
            return ready
        done = serve(np.ascontiguousarray(ready), self.row_ps, self.free_ps)
        self.free_ps = int(done[-1, -1])
        self.served_rows += ready.size
        self.spared_rows += ready.size * (1 - self.share)
        self.busy_ps += ready.size * self.row_ps
        return done + self.latency_ps if self.latency_ps else done

    def shrink(self, share: float) -> None:
        """From now on rows have this share of their bytes, and take so much less."""
        self.share = share
        self.row_ps = math.ceil(self._whole_row_ps * share)
