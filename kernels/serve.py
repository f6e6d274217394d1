"""Rows through a server that takes them in order: the recurrence under all virtual times."""

import numpy as np
from numpy.typing import NDArray

from .compiled import compiled


@compiled
def serve(ready: NDArray[np.int64], row_ps: int, free_ps: int) -> NDArray[np.int64]:
    """When each row is done, of `ready` (samples, rows) in ps, C-contiguous, if the server is free at `free_ps`.

    A row is taken when it is ready and the one before it is done, and takes `row_ps`.
    """
    done = np.empty_like(ready)
    for sample in range(ready.shape[0]):
        for row in range(ready.shape[1]):
            free_ps = max(free_ps, ready[sample, row]) + row_ps
            done[sample, row] = free_ps
    return done
