"""Local response normalisation across channels, as in AlexNet and `torch.nn.LocalResponseNorm`.

    scale[c] = k + alpha / size * sum of x[j]^2 over the window c - size // 2 .. c + (size - 1) // 2
    y[c] = x[c] / scale[c]^beta

Channels outside the map count as zeros. Sums run over channels ascending.
"""

from typing import Any

import numpy as np
from numba import njit

from .arrays import Floats, dense, same_shape


def forward(x: Floats, *, size: int, alpha: float, beta: float, k: float) -> tuple[Floats, Floats]:
    """Return (y, scale), both of the shape of x (n, c, h, w); `error` wants them. Raise ValueError if x is not 4-d."""
    _check(x, size)
    return _forward(dense(x, "x"), size, np.float32(alpha), np.float32(beta), np.float32(k))


def error(x: Floats, y: Floats, scale: Floats, dy: Floats, *, size: int, alpha: float, beta: float, k: float) -> Floats:
    """Return dx for the errors dy of y, all of the shape of x (n, c, h, w). Raise ValueError where shapes differ.

    k has had its effect in scale, and is taken so that both directions are called alike.
    """
    _check(x, size)
    for other in (y, scale, dy):
        same_shape(x, other, "x and each of y, scale, dy")
    arrays = (dense(x, "x"), dense(y, "y"), dense(scale, "scale"), dense(dy, "dy"))
    return _error(*arrays, size, np.float32(alpha), np.float32(beta))


def _check(x: Floats, size: int) -> None:
    if x.ndim != 4:
        raise ValueError(f"maps (n, c, h, w) are needed, not {x.shape}")
    if size < 1:
        raise ValueError(f"the window must hold at least one channel, not {size}")


@njit(cache=True, nogil=True)
def _power(value: Any, beta: Any) -> Any:
    """value ** beta; for the usual 3/4 by square roots, which are quick and the same on all processors."""
    if beta == np.float32(0.75):
        root = np.sqrt(value)
        return root * np.sqrt(root)
    return value**beta


@njit(cache=True, nogil=True)
def _forward(x: Any, size: Any, alpha: Any, beta: Any, k: Any) -> Any:
    n, channels, h, w = x.shape
    y, scale = np.empty_like(x), np.empty_like(x)
    share = alpha / np.float32(size)
    total = np.empty(w, np.float32)
    for sample in range(n):
        for channel in range(channels):
            first, last = max(channel - size // 2, 0), min(channel + (size - 1) // 2 + 1, channels)
            for row in range(h):
                total[:] = 0
                for other in range(first, last):
                    for column in range(w):
                        total[column] += x[sample, other, row, column] * x[sample, other, row, column]
                for column in range(w):
                    value = k + share * total[column]
                    scale[sample, channel, row, column] = value
                    y[sample, channel, row, column] = x[sample, channel, row, column] / _power(value, beta)
    return y, scale


@njit(cache=True, nogil=True)
def _error(x: Any, y: Any, scale: Any, dy: Any, size: Any, alpha: Any, beta: Any) -> Any:
    n, channels, h, w = x.shape
    dx = np.empty_like(x)
    factor = np.float32(2) * alpha * beta / np.float32(size)
    total, ratio = np.empty(w, np.float32), np.empty((channels, h, w), np.float32)
    for sample in range(n):
        for channel in range(channels):
            for row in range(h):
                for column in range(w):
                    product = dy[sample, channel, row, column] * y[sample, channel, row, column]
                    ratio[channel, row, column] = product / scale[sample, channel, row, column]
        for channel in range(channels):
            # the channels whose windows hold this one: the window, turned round
            first, last = max(channel - (size - 1) // 2, 0), min(channel + size // 2 + 1, channels)
            for row in range(h):
                total[:] = 0
                for other in range(first, last):
                    for column in range(w):
                        total[column] += ratio[other, row, column]
                for column in range(w):
                    direct = dy[sample, channel, row, column] / _power(scale[sample, channel, row, column], beta)
                    dx[sample, channel, row, column] = direct - factor * x[sample, channel, row, column] * total[column]
    return dx
