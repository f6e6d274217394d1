"""The rectifier: max(x, 0)."""

from typing import Any

import numpy as np

from ..jit import Floats, compiled, dense, same_shape, source, target
from .bias import check, widened


def forward(y: Floats) -> None:
    """Set maps `y` (n, rows, columns, channels) to max(y, 0) in place; a NaN stays a NaN."""
    _forward(*target(y, "y"))


def forward_with_bias(y: Floats, b: Floats) -> None:
    """Add `b` (channels,) to maps `y` (n, rows, columns, channels), and rectify them, in place and in one pass.

    Raise ValueError where shapes do not fit.
    """
    check(y, b)
    _forward_with_bias(*target(y, "y"), dense(b, "b"))


def error(y: Floats, dy: Floats) -> None:
    """Turn the errors `dy` of the outputs `y` into those of the inputs, in place: +0 where y is not above 0.

    Both are (n, rows, columns, channels); raise ValueError if their shapes differ.
    """
    same_shape(y, dy, "outputs and their errors")
    _error(*source(y, "y"), *target(dy, "dy"))


def warm() -> None:
    """Compile all kernels: call each once on tiny arrays, as training calls it."""
    y = np.ones((1, 3, 3, 2), np.float32)
    forward(y)
    forward_with_bias(y, np.ones(2, np.float32))
    error(y, np.ones_like(y))


@compiled
def _forward(y: Any, extent: Any) -> None:
    n, rows, columns, channels, pitch = extent
    pixels = n * rows * columns
    if pitch == channels:
        pixels, channels = 1, pixels * channels
    for pixel in range(pixels):
        at = np.uint64(pixel * pitch)
        for c in range(np.uint64(channels)):
            value = y[at + c]
            y[at + c] = np.float32(0) if value <= 0 else value


@compiled
def _forward_with_bias(y: Any, extent: Any, b: Any) -> None:
    n, rows, columns, channels, pitch = extent
    pixels = n * rows * columns
    wide, block = widened(b, pitch)
    for pixel in range(0, pixels, block):
        at = np.uint64(pixel * pitch)
        for c in range(np.uint64(min(block, pixels - pixel) * channels)):
            value = y[at + c] + wide[c]
            y[at + c] = np.float32(0) if value <= 0 else value


@compiled
def _error(y: Any, y_extent: Any, dy: Any, dy_extent: Any) -> None:
    (n, rows, columns, channels, y_pitch), dy_pitch = y_extent, dy_extent[4]
    pixels = n * rows * columns
    if y_pitch == channels and dy_pitch == channels:
        pixels, channels = 1, pixels * channels
    for pixel in range(pixels):
        at, dy_at = np.uint64(pixel * y_pitch), np.uint64(pixel * dy_pitch)
        for c in range(np.uint64(channels)):
            dy[dy_at + c] = dy[dy_at + c] if y[at + c] > 0 else np.float32(0)
