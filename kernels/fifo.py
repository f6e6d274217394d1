"""A FIFO resource that serves rows in order: the recurrence behind all virtual times."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .jit import compiled

Times = NDArray[np.int64]


def serve(ready: Times, row_ps: int, free_ps: int) -> Times:
    """Return the finish time of each row in ps, from the times `ready` (samples, rows) in ps,
    C-contiguous.

    The resource is free at `free_ps`. It starts a row when the row is ready and the one before it
    is done, and takes `row_ps` for it.
    """
    done = np.empty_like(ready)
    _serve(ready, row_ps, free_ps, done)
    return done


@compiled
def _serve(ready: Any, row_ps: Any, free_ps: Any, done: Any) -> None:
    for sample in range(ready.shape[0]):
        for row in range(ready.shape[1]):
            free_ps = max(free_ps, ready[sample, row]) + row_ps
            done[sample, row] = free_ps
