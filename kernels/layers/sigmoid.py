"""Sigmoid, by the polynomial of recurrent layers, and its form of straight lines."""

from typing import Any

import numpy as np

from ..jit import Floats, compiled, same_shape, source, target


def forward(x: Floats, y: Floats) -> None:
    """Write the sigmoid of `x` to `y`, both (n, rows, columns, channels). Raise ValueError if their shapes differ."""
    from ..recurrent import sigmoid  # which only networks with a sigmoid need

    same_shape(x, y, "inputs and outputs")
    y[...] = sigmoid(x)


def error(y: Floats, dy: Floats) -> None:
    """Turn the errors `dy` of the outputs `y` into those of the inputs, in place: dy * (1 - y) * y, from the left.

    Both are (n, rows, columns, channels); raise ValueError if their shapes differ.
    """
    same_shape(y, dy, "outputs and their errors")
    _error(*source(y, "y"), *target(dy, "dy"))


def hard_forward(x: Floats, y: Floats) -> None:
    """Write min(max(x + 3, 0), 6) / 6 of `x` to `y`, both (n, rows, columns, channels); a NaN stays a NaN.

    Raise ValueError if their shapes differ.
    """
    same_shape(x, y, "inputs and outputs")
    _hard_forward(*source(x, "x"), *target(y, "y"))


def hard_error(x: Floats, dy: Floats) -> None:
    """Turn the errors `dy` of the outputs into those of the inputs `x`, in place: dy / 6 where -3 < x < 3, else +0.

    Both are (n, rows, columns, channels); raise ValueError if their shapes differ.
    """
    same_shape(x, dy, "inputs and errors")
    _hard_error(*source(x, "x"), *target(dy, "dy"))


def warm() -> None:
    """Compile all kernels: call each once on tiny arrays, as training calls it."""
    x = np.ones((1, 3, 3, 2), np.float32)
    forward(x, np.empty_like(x))
    error(x, np.ones_like(x))
    hard_forward(x, np.empty_like(x))
    hard_error(x, np.ones_like(x))


@compiled
def _error(y: Any, y_extent: Any, dy: Any, dy_extent: Any) -> None:
    (n, rows, columns, channels, y_pitch), dy_pitch = y_extent, dy_extent[4]
    for pixel in range(n * rows * columns):
        at, dy_at = np.uint64(pixel * y_pitch), np.uint64(pixel * dy_pitch)
        for c in range(np.uint64(channels)):
            value = y[at + c]
            dy[dy_at + c] = dy[dy_at + c] * (np.float32(1) - value) * value


@compiled
def hard(value: Any) -> Any:
    """Return the hard sigmoid of a number."""
    raised = value + np.float32(3)
    above = np.float32(0) if raised <= 0 else raised
    return (np.float32(6) if above >= 6 else above) / np.float32(6)


@compiled
def _hard_forward(x: Any, x_extent: Any, y: Any, y_extent: Any) -> None:
    (n, rows, columns, channels, x_pitch), y_pitch = x_extent, y_extent[4]
    for pixel in range(n * rows * columns):
        at, to = np.uint64(pixel * x_pitch), np.uint64(pixel * y_pitch)
        for c in range(np.uint64(channels)):
            y[to + c] = hard(x[at + c])


@compiled
def _hard_error(x: Any, x_extent: Any, dy: Any, dy_extent: Any) -> None:
    (n, rows, columns, channels, x_pitch), dy_pitch = x_extent, dy_extent[4]
    for pixel in range(n * rows * columns):
        at, dy_at = np.uint64(pixel * x_pitch), np.uint64(pixel * dy_pitch)
        for c in range(np.uint64(channels)):
            value = x[at + c]
            dy[dy_at + c] = dy[dy_at + c] / np.float32(6) if (value > -3) & (value < 3) else np.float32(0)
