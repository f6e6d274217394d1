"""The rectifier with a limit: max(x, 0), and at most 6."""

from typing import Any

import numpy as np

from ..element_wise import between_maps, over_maps
from ..jit import Floats, same_shape, source, target


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


@over_maps
def _forward(y: Any) -> Any:
    above = np.float32(0) if y <= 0 else y
    return np.float32(6) if above >= 6 else above


@between_maps
def _error(y: Any, dy: Any) -> Any:
    return dy if (y > 0) & (y < 6) else np.float32(0)
