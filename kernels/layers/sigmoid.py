"""Sigmoid, by the polynomial of recurrent layers, and its form of straight lines."""

from typing import Any

import numpy as np

from ..element_wise import between_maps
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


@between_maps
def _error(y: Any, dy: Any) -> Any:
    return dy * (np.float32(1) - y) * y


@compiled
def hard(value: Any) -> Any:
    """Return the hard sigmoid of a number."""
    raised = value + np.float32(3)
    above = np.float32(0) if raised <= 0 else raised
    return (np.float32(6) if above >= 6 else above) / np.float32(6)


@between_maps
def _hard_forward(x: Any, _y: Any) -> Any:
    return hard(x)


@between_maps
def _hard_error(x: Any, dy: Any) -> Any:
    return dy / np.float32(6) if (x > -3) & (x < 3) else np.float32(0)
