"""The rectifier: max(x, 0)."""

from typing import Any

import numpy as np

from ..element_wise import between_maps, over_maps
from ..jit import Bytes, Floats, byte_maps, compiled, dense, same_shape, source, target
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


def mark(y: Floats, marks: Bytes) -> None:
    """Set `marks`, uint8 of the shape of `y` and C-contiguous, to 1 where y is above 0, else to 0.

    They are a quarter of the maps, and all that `marked_error` needs. Raise ValueError if they are of another kind.
    """
    _mark(*source(y, "y"), *byte_maps(marks, y, "marks"))


def marked_error(marks: Bytes, dy: Floats) -> None:
    """Turn the errors `dy` of outputs into those of the inputs, in place: +0 where `marks` is 0.

    Raise ValueError if `marks` is not as `mark` takes it.
    """
    _marked_error(*byte_maps(marks, dy, "marks"), *target(dy, "dy"))


def warm() -> None:
    """Compile all kernels: call each once on tiny arrays, as training calls it."""
    y = np.ones((1, 3, 3, 2), np.float32)
    forward(y)
    forward_with_bias(y, np.ones(2, np.float32))
    error(y, np.ones_like(y))
    marks = np.ones(y.shape, np.uint8)
    mark(y, marks)
    marked_error(marks, y)


@over_maps
def _forward(y: Any) -> Any:
    return np.float32(0) if y <= 0 else y


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


@between_maps
def _mark(y: Any, mark: Any) -> Any:
    return y > 0


@between_maps
def _marked_error(mark: Any, dy: Any) -> Any:
    return dy if mark else np.float32(0)


@between_maps
def _error(y: Any, dy: Any) -> Any:
    return dy if y > 0 else np.float32(0)
