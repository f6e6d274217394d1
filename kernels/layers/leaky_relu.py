"""The leaky rectifier: x above 0, else slope * x."""

from typing import Any

import numpy as np

from ..element_wise import between_maps
from ..jit import Floats, same_shape, source, target


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


@between_maps
def _forward(x: Any, _y: Any, slope: Any) -> Any:
    return slope * x if x <= 0 else x


@between_maps
def _error(x: Any, dy: Any, slope: Any) -> Any:
    return dy if x > 0 else slope * dy
