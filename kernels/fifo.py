"""Rows through a server that takes them in order: the recurrence under all virtual times."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .jit.compiled import compiled

Times = NDArray[np.int64]


def serve(ready: Times, row_ps: int, free_ps: int) -> Times:
    """When each row is done, of `ready` (samples, rows) in ps, C-contiguous, if the server is free at `free_ps`.

    A row is taken when it is ready and the one before it is done, and takes `row_ps`.
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
