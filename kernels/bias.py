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
    for sample in range(n):
        for channel in range(channels):
            total = db[channel]
            for row in range(h):
                for column in range(w):
                    total += dy[sample, channel, row, column]
            db[channel] = total
