"""The bias of a layer: one number for each channel, added to its whole map."""

from typing import Any

from numba import njit

from .arrays import Floats, dense, in_place


def add_bias(y: Floats, b: Floats) -> None:
    """Add b (c,) to the maps y (n, c, h, w) in place. Raise ValueError where shapes do not fit."""
    _check(y, b)
    _add_bias(in_place(y, "y"), dense(b, "b"))


def add_bias_gradient(db: Floats, dy: Floats) -> None:
    """Add dy (n, c, h, w) to db (c,) in place: sample, row, column ascending, so micro-batches do not matter.

    Raise ValueError where shapes do not fit.
    """
    _check(dy, db)
    _add_bias_gradient(in_place(db, "db"), dense(dy, "dy"))


def _check(maps: Floats, bias: Floats) -> None:
    if maps.ndim != 4 or bias.shape != maps.shape[1:2]:
        raise ValueError(f"maps (n, c, h, w) and a bias (c,) are needed, not {maps.shape} and {bias.shape}")


@njit(cache=True, nogil=True)
def _add_bias(y: Any, b: Any) -> None:
    n, channels, h, w = y.shape
    for sample in range(n):
        for channel in range(channels):
            for row in range(h):
                for column in range(w):
                    y[sample, channel, row, column] += b[channel]


@njit(cache=True, nogil=True)
def _add_bias_gradient(db: Any, dy: Any) -> None:
    n, channels, h, w = dy.shape
    maps = dy.reshape(n, channels, h * w)
    whole = channels // 4 * 4
    for sample in range(n):
        for channel in range(0, whole, 4):  # four sums at a time, as each addition waits for the one before
            a, b, c, d = db[channel], db[channel + 1], db[channel + 2], db[channel + 3]
            for place in range(h * w):
                a += maps[sample, channel, place]
                b += maps[sample, channel + 1, place]
                c += maps[sample, channel + 2, place]
                d += maps[sample, channel + 3, place]
            db[channel], db[channel + 1], db[channel + 2], db[channel + 3] = a, b, c, d
        for channel in range(whole, channels):
            for place in range(h * w):
                db[channel] += maps[sample, channel, place]
