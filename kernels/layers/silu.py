"""x times its sigmoid, and its form of straight lines."""

from typing import Any

import numpy as np

from ..element_wise import between_maps
from ..jit import Floats, compiled, same_shape, source, target
from . import sigmoid
from .sigmoid import hard


def forward(x: Floats, gate: Floats, y: Floats) -> None:
    """Write the sigmoid of `x` to `gate`, and x times it to `y`, all (n, rows, columns, channels).

    Raise ValueError if their shapes differ.
    """
    same_shape(x, y, "inputs and outputs")
    sigmoid.forward(x, gate)
    np.multiply(x, gate, out=y)


def error(x: Floats, gate: Floats, dy: Floats) -> None:
    """Turn the errors `dy` of the outputs into those of the inputs `x`, in place: dy * gate * (1 + x * (1 - gate)).

    All are (n, rows, columns, channels); raise ValueError if their shapes differ.
    """
    same_shape(x, dy, "inputs and errors")
    same_shape(x, gate, "inputs and gates")
    _error(*source(x, "x"), *source(gate, "gate"), *target(dy, "dy"))


def hard_forward(x: Floats, y: Floats) -> None:
    """Write `x` times its hard sigmoid to `y`, both (n, rows, columns, channels). Raise ValueError as `forward`."""
    same_shape(x, y, "inputs and outputs")
    _hard_forward(*source(x, "x"), *target(y, "y"))


def hard_error(x: Floats, dy: Floats) -> None:
    """Turn the errors `dy` of the outputs into those of the inputs `x`, in place.

    That is +0 up to x = -3, dy from x = 3 on, and dy * (x / 3 + 0.5) between. Both are (n, rows, columns, channels);
    raise ValueError if their shapes differ.
    """
    same_shape(x, dy, "inputs and errors")
    _hard_error(*source(x, "x"), *target(dy, "dy"))


def warm() -> None:
    """Compile all kernels: call each once on tiny arrays, as training calls it."""
    x = np.ones((1, 3, 3, 2), np.float32)
    forward(x, np.empty_like(x), np.empty_like(x))
    error(x, x, np.ones_like(x))
    hard_forward(x, np.empty_like(x))
    hard_error(x, np.ones_like(x))


@compiled
def _error(x: Any, x_extent: Any, gate: Any, gate_extent: Any, dy: Any, dy_extent: Any) -> None:
    (n, rows, columns, channels, x_pitch), gate_pitch, dy_pitch = x_extent, gate_extent[4], dy_extent[4]
    for pixel in range(n * rows * columns):
        at, gate_at, dy_at = np.uint64(pixel * x_pitch), np.uint64(pixel * gate_pitch), np.uint64(pixel * dy_pitch)
        for c in range(np.uint64(channels)):
            value = gate[gate_at + c]
            slope = np.float32(1) + x[at + c] * (np.float32(1) - value)
            dy[dy_at + c] = dy[dy_at + c] * value * slope


@between_maps
def _hard_forward(x: Any, _y: Any) -> Any:
    return x * hard(x)


@between_maps
def _hard_error(x: Any, dy: Any) -> Any:
    slope = x / np.float32(3) + np.float32(0.5)
    slope = np.float32(0) if x <= -3 else (np.float32(1) if x >= 3 else slope)
    return dy * slope
