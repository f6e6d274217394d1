"""The leaky rectifier: x above 0, else slope * x."""

from typing import Any

import numpy as np

from ..jit import Floats, compiled, same_shape, source, target


def forward(x: Floats, y: Floats, *, slope: float) -> None:
    """Write the rectified `x` to `y`, both (n, rows, columns, channels); a NaN stays a NaN.

    Raise ValueError if their shapes differ.
    """
    same_shape(x, y, "inputs and outputs")
    _forward(*source(x, "x"), *target(y, "y"), np.float32(slope))


def error(x: Floats, dy: Floats, *, slope: float) -> None:
    """Turn the errors `dy` of the outputs into those of the inputs `x`, in place: times `slope` where x is not above 0.

    Both are (n, rows, columns, channels); raise ValueError if their shapes differ.
    """
    same_shape(x, dy, "inputs and errors")
    _error(*source(x, "x"), *target(dy, "dy"), np.float32(slope))


def warm() -> None:
    """Compile all kernels: call each once on tiny arrays, as training calls it."""
    x = np.ones((1, 3, 3, 2), np.float32)
    y = np.empty_like(x)
    forward(x, y, slope=0.1)
    error(x, y, slope=0.1)


@compiled
def _forward(x: Any, x_extent: Any, y: Any, y_extent: Any, slope: Any) -> None:
    (n, rows, columns, channels, x_pitch), y_pitch = x_extent, y_extent[4]
    for pixel in range(n * rows * columns):
        at, to = np.uint64(pixel * x_pitch), np.uint64(pixel * y_pitch)
        for c in range(np.uint64(channels)):
            value = x[at + c]
            y[to + c] = slope * value if value <= 0 else value


@compiled
def _error(x: Any, x_extent: Any, dy: Any, dy_extent: Any, slope: Any) -> None:
    (n, rows, columns, channels, x_pitch), dy_pitch = x_extent, dy_extent[4]
    for pixel in range(n * rows * columns):
        at, dy_at = np.uint64(pixel * x_pitch), np.uint64(pixel * dy_pitch)
        for c in range(np.uint64(channels)):
            dy[dy_at + c] = dy[dy_at + c] if x[at + c] > 0 else slope * dy[dy_at + c]
