"""The bias of a layer: one number for each channel, added to its whole map."""

from typing import Any

import numpy as np

from ..jit import Floats, compiled, dense, in_place, source, target


def add_bias(y: Floats, b: Floats) -> None:
    """Add `b` (channels,) to the maps `y` (n, rows, columns, channels) in place.

    Raise ValueError where shapes do not fit.
    """
    check(y, b)
    _add_bias(*target(y, "y"), dense(b, "b"))


def add_bias_gradient(db: Floats, dy: Floats, *, fresh: bool) -> None:
    """Add the errors `dy` (n, rows, columns, channels) to `db` (channels,) in place; where `fresh`, start from +0.

    Samples, rows and columns are added in ascending order, so micro-batches do not change the bits. Raise ValueError
    where shapes do not fit.
    """
    check(dy, db)
    _add_bias_gradient(in_place(db, "db"), *source(dy, "dy"), bool(fresh))


def check(maps: Floats, bias: Floats) -> None:
    """Raise ValueError unless the bias has one number for each channel of the maps."""
    if maps.ndim != 4 or bias.shape != maps.shape[3:]:
        raise ValueError(
            f"maps (n, rows, columns, channels) and a bias (channels,) are needed, not {maps.shape} and {bias.shape}"
        )


def warm() -> None:
    """Compile all kernels: call each once on tiny arrays, as training calls it."""
    y, b = np.ones((1, 3, 3, 2), np.float32), np.ones(2, np.float32)
    add_bias(y, b)
    add_bias_gradient(b, y, fresh=True)


@compiled
def widened(b: Any, pitch: Any) -> Any:
    """Return the bias repeated for some adjacent pixels, and their number: long loops are fast."""
    channels = b.size
    block = max(1, 512 // channels) if pitch == channels else 1
    wide = np.empty(block * channels, np.float32)
    for first in range(0, wide.size, channels):
        for c in range(channels):
            wide[first + c] = b[c]
    return wide, block


@compiled
def _add_bias(y: Any, extent: Any, b: Any) -> None:
    n, rows, columns, channels, pitch = extent
    pixels = n * rows * columns
    wide, block = widened(b, pitch)
    for pixel in range(0, pixels, block):
        at = np.uint64(pixel * pitch)
        for c in range(np.uint64(min(block, pixels - pixel) * channels)):
            y[at + c] += wide[c]


@compiled
def _add_bias_gradient(db: Any, dy: Any, extent: Any, fresh: Any) -> None:
    n, rows, columns, channels, pitch = extent
    pixels = n * rows * columns
    if fresh:
        db[:] = 0
    whole, step = pixels // 4 * 4, np.uint64(pitch)
    for pixel in range(0, whole, 4):  # four at a time: db is loaded and stored a quarter as often
        at = np.uint64(pixel * pitch)
        for c in range(np.uint64(channels)):
            total = db[c] + dy[at + c]
            total += dy[at + step + c]
            total += dy[at + step + step + c]
            db[c] = total + dy[at + step + step + step + c]
    for pixel in range(whole, pixels):
        at = np.uint64(pixel * pitch)
        for c in range(np.uint64(channels)):
            db[c] += dy[at + c]
