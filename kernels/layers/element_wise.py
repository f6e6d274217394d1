"""Loops over pixels and channels of maps: around a function of the numbers at one place, and for a
layer's bias.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np

from ..jit import Floats, Kernel, compiled, dense, in_place, source, target

_function: Any = None  # of the numbers at one place, in each kernel's own copy of a loop


def over_maps(function: Callable[[Any], Any]) -> Kernel:
    """Return a kernel (y, extent) that sets each y to function(y)."""
    return _around(function, _over)


def between_maps(function: Callable[..., Any]) -> Kernel:
    """Return a kernel (x, extent, y, extent, *parameters) that sets each y to function(x, y,
    *parameters).
    """
    return _around(function, _between)


def _around(function: Callable[..., Any], loop: Callable[..., None]) -> Kernel:
    module, name = function.__module__, function.__name__
    scope = {**globals(), "_function": Kernel(module, name, function)}
    return Kernel(module, name, types.FunctionType(loop.__code__, scope, name))


def _over(y: Any, extent: Any) -> None:
    n, rows, columns, channels, pitch = extent
    pixels = n * rows * columns
    if pitch == channels:  # a long loop is fast
        pixels, channels = 1, pixels * channels
    for pixel in range(pixels):
        at = np.uint64(pixel * pitch)
        for c in range(np.uint64(channels)):
            y[at + c] = _function(y[at + c])


def _between(x: Any, x_extent: Any, y: Any, y_extent: Any, *parameters: Any) -> None:
    (n, rows, columns, channels, x_pitch), y_pitch = x_extent, y_extent[4]
    pixels = n * rows * columns
    if x_pitch == channels and y_pitch == channels:  # as above
        pixels, channels = 1, pixels * channels
    for pixel in range(pixels):
        at, to = np.uint64(pixel * x_pitch), np.uint64(pixel * y_pitch)
        for c in range(np.uint64(channels)):
            y[to + c] = _function(x[at + c], y[to + c], *parameters)


def add_bias(y: Floats, b: Floats) -> None:
    """Add `b` (channels,) to the maps `y` (n, rows, columns, channels) in place.

    Raise ValueError where shapes do not fit.
    """
    check(y, b)
    _add_bias(*target(y, "y"), dense(b, "b"))


def rectify_with_bias(y: Floats, b: Floats) -> None:
    """Add `b` (channels,) to maps `y` (n, rows, columns, channels), and rectify them, in place and
    in one pass.

    Raise ValueError where shapes do not fit.
    """
    check(y, b)
    _rectify_with_bias(*target(y, "y"), dense(b, "b"))


def add_bias_gradient(db: Floats, dy: Floats, *, fresh: bool) -> None:
    """Add the errors `dy` (n, rows, columns, channels) to `db` (channels,) in place; where `fresh`,
    start from +0.

    Samples, rows and columns are added in ascending order, so micro-batches do not change the bits.
    Raise ValueError where shapes do not fit.
    """
    check(dy, db)
    _add_bias_gradient(in_place(db, "db"), *source(dy, "dy"), bool(fresh))


def check(maps: Floats, bias: Floats) -> None:
    """Raise ValueError unless the bias has one number for each channel of the maps."""
    if maps.ndim != 4 or bias.shape != maps.shape[3:]:
        raise ValueError(
            f"maps (n, rows, columns, channels) and a bias (channels,) are needed, not {maps.shape}"
            f" and {bias.shape}"
        )


def warm() -> None:
    """Compile all kernels: call each once on tiny arrays, as training calls it."""
    y, b = np.ones((1, 3, 3, 2), np.float32), np.ones(2, np.float32)
    add_bias(y, b)
    rectify_with_bias(y, b)
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
def _rectify_with_bias(y: Any, extent: Any, b: Any) -> None:
    n, rows, columns, channels, pitch = extent
    pixels = n * rows * columns
    wide, block = widened(b, pitch)
    for pixel in range(0, pixels, block):
        at = np.uint64(pixel * pitch)
        for c in range(np.uint64(min(block, pixels - pixel) * channels)):
            value = y[at + c] + wide[c]
            y[at + c] = np.float32(0) if value <= 0 else value


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
