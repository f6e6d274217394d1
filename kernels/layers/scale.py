"""Sums of products for factors of channels: of each sample, as a gate's errors, or of all samples,
as the gradient of a learnt factor, of each channel or one of all.

Maps are (n, rows, columns, channels); rows and columns are added in ascending order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import Floats, compiled, in_place, same_shape, source, target


def gate_error(x: Floats, dy: Floats, errors: Floats) -> None:
    """Write each sample's sums of `dy` times `x` over rows and columns to `errors` (n, 1, 1,
    channels).

    They are in double precision, and rounded once. Raise ValueError where shapes do not fit.
    """
    same_shape(x, dy, "inputs and errors of the outputs")
    if errors.shape != (len(x), 1, 1, x.shape[3]):
        raise ValueError(
            f"errors have shape {errors.shape}; {(len(x), 1, 1, x.shape[3])} is needed"
        )
    _gate_error(*source(x, "x"), *source(dy, "dy"), *target(errors, "errors"))


def scale_gradient(x: Floats, dy: Floats, gradient: Floats, *, fresh: bool) -> None:
    """Add `dy` times `x` to `gradient` (channels,) in place; where `fresh`, start from +0.

    Samples are in ascending order, too, so micro-batches do not change the bits. Raise ValueError
    where shapes do not fit.
    """
    same_shape(x, dy, "inputs and errors of the outputs")
    if gradient.shape != x.shape[3:]:
        raise ValueError(f"maps {x.shape} need a gradient of shape {x.shape[3:]}")
    own = in_place(gradient, "gradient")
    _scale_gradient(*source(x, "x"), *source(dy, "dy"), own, bool(fresh))


def total_gradient(x: Floats, dy: Floats, gradient: Floats, *, fresh: bool) -> None:
    """Add `dy` times `x` to the one number of `gradient` (1,) in place; where `fresh`, start from
    +0.

    The sum over a sample, channels ascending last, is in double precision, and rounded once;
    samples are added in ascending order. Raise ValueError where shapes do not fit.
    """
    same_shape(x, dy, "inputs and errors of the outputs")
    n = len(x)
    one, other = (np.ascontiguousarray(own).reshape(n, -1, 1, 1) for own in (x, dy))
    errors = np.empty((n, 1, 1, 1), np.float32)
    gate_error(one, other, errors)
    scale_gradient(np.ones_like(errors), errors, gradient, fresh=fresh)


def warm() -> None:
    """Compile all kernels: call each once on tiny arrays, as training calls it."""
    x = np.ones((1, 1, 1, 2), np.float32)
    gate_error(x, x, np.empty_like(x))
    scale_gradient(x, x, np.empty(2, np.float32), fresh=True)


@compiled
def _gate_error(
    x: Any, extent: Any, dy: Any, dy_extent: Any, errors: Any, errors_extent: Any
) -> None:
    n, rows, columns, channels, pitch = extent
    pixels = rows * columns
    sums = np.empty(channels, np.float64)
    for sample in range(n):
        sums[:] = 0
        for pixel in range(sample * pixels, (sample + 1) * pixels):
            at, dy_at = np.uint64(pixel * pitch), np.uint64(pixel * dy_extent[4])
            for c in range(np.uint64(channels)):
                sums[c] += np.float64(x[at + c]) * np.float64(dy[dy_at + c])
        for c in range(channels):
            errors[sample * errors_extent[4] + c] = np.float32(sums[c])


@compiled
def _scale_gradient(
    x: Any, extent: Any, dy: Any, dy_extent: Any, gradient: Any, fresh: Any
) -> None:
    n, rows, columns, channels, pitch = extent
    if fresh:
        gradient[:] = 0
    for pixel in range(n * rows * columns):
        at, dy_at = np.uint64(pixel * pitch), np.uint64(pixel * dy_extent[4])
        for c in range(np.uint64(channels)):
            gradient[c] += dy[dy_at + c] * x[at + c]
