"""The rectifier: max(x, 0)."""

from typing import Any

import numpy as np
from numba import njit

from .arrays import Floats, dense, same_shape


def forward(x: Floats) -> Floats:
    """Return max(x, 0) of any shape; a NaN stays a NaN."""
    return _forward(dense(x, "x").reshape(-1)).reshape(x.shape)


def error(y: Floats, dy: Floats) -> Floats:
    """Return dx: dy where the output y is above 0, else 0. Raise ValueError if their shapes differ."""
    same_shape(y, dy, "outputs and their errors")
    return _error(dense(y, "y").reshape(-1), dense(dy, "dy").reshape(-1)).reshape(y.shape)


@njit(cache=True, nogil=True)
def _forward(x: Any) -> Any:
    y = np.empty_like(x)
    for i in range(x.size):
        y[i] = np.float32(0) if x[i] <= 0 else x[i]
    return y


@njit(cache=True, nogil=True)
def _error(y: Any, dy: Any) -> Any:
    dx = np.empty_like(dy)
    for i in range(y.size):
        dx[i] = dy[i] if y[i] > 0 else np.float32(0)
    return dx
