"""The rectifier with a limit: max(x, 0), and at most 6."""

from typing import Any

import numpy as np

from ..jit import Floats, compiled, same_shape, source, target


def forward(y: Floats) -> None:
    """Set maps `y` (n, rows, columns, channels) to min(max(y, 0), 6) in place; a NaN stays a NaN."""
    _forward(*target(y, "y"))


def error(y: Floats, dy: Floats) -> None:
    """Turn the errors `dy` of the outputs `y` into those of the inputs, in place: +0 where y is not between 0 and 6.

    Both are (n, rows, columns, channels); raise ValueError if their shapes differ.
    """
    same_shape(y, dy, "outputs and their errors")
    _error(*source(y, "y"), *target(dy, "dy"))


def warm() -> None:
    """Compile all kernels: call each once on tiny arrays, as training calls it."""
    y = np.ones((1, 3, 3, 2), np.float32)
    forward(y)
    error(y, np.ones_like(y))


@compiled
def _forward(y: Any, extent: Any) -> None:
    n, rows, columns, channels, pitch = extent
    for pixel in range(n * rows * columns):
        at = np.uint64(pixel * pitch)
        for c in range(np.uint64(channels)):
            value = np.float32(0) if y[at + c] <= 0 else y[at + c]
            y[at + c] = np.float32(6) if value >= 6 else value


@compiled
def _error(y: Any, y_extent: Any, dy: Any, dy_extent: Any) -> None:
    (n, rows, columns, channels, y_pitch), dy_pitch = y_extent, dy_extent[4]
    for pixel in range(n * rows * columns):
        at, dy_at = np.uint64(pixel * y_pitch), np.uint64(pixel * dy_pitch)
        for c in range(np.uint64(channels)):
            value = y[at + c]
            dy[dy_at + c] = dy[dy_at + c] if (value > 0) & (value < 6) else np.float32(0)
