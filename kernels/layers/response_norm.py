"""Global response normalisation: each channel times its length beside the mean length of all.

    length = sqrt(sum of x^2), over all rows and columns of a channel of a sample
    inverse = 1 / (mean of the lengths of all channels + epsilon);  share = length * inverse
    y = x * share

and back, with s = sum of dy * x over a channel's rows and columns:

    dx = dy * share + x * ((s - mean of s * share over channels) * inverse / length)

The second term is 0 where the length is. Sums are in double precision, rows, columns and channels
ascending, and rounded once. (Woo et al., ConvNeXt V2, 2023, equations 1 to 3; its learnt factors
and terms, and the shortcut around it, are operations of their own.)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import Floats, compiled, in_place, same_shape, source, target


def response_norm_forward(x: Floats, y: Floats, lengths: Floats, *, epsilon: float) -> None:
    """Write the global response normalisation of `x` to `y`, both (n, rows, columns, channels), and
    each channel's length to `lengths` (n, channels), in place. Raise ValueError where shapes do not
    fit.
    """
    same_shape(x, y, "inputs and outputs")
    own = _check(x, lengths)
    _forward(*source(x, "x"), *target(y, "y"), own, np.float32(epsilon))


def response_norm_error(
    x: Floats, lengths: Floats, dy: Floats, dx: Floats, *, epsilon: float
) -> None:
    """Write the errors of `x` to `dx`, which may be `dy`, for the errors `dy` of the outputs, in
    place. Raise ValueError where shapes do not fit.
    """
    same_shape(x, dy, "inputs and errors of the outputs")
    same_shape(x, dx, "inputs and their errors")
    own = _check(x, lengths)
    _error(*source(x, "x"), *source(dy, "dy"), *target(dx, "dx"), own, np.float32(epsilon))


def _check(x: Floats, lengths: Floats) -> Floats:
    """Return the lengths, flat."""
    if lengths.shape != (len(x), x.shape[3]):
        raise ValueError(f"lengths has shape {lengths.shape}; {(len(x), x.shape[3])} is needed")
    return in_place(lengths, "lengths").reshape(-1)


def warm() -> None:
    """Compile all kernels: call each once on tiny arrays, as training calls it."""
    x, lengths = np.ones((1, 1, 1, 2), np.float32), np.empty((1, 2), np.float32)
    response_norm_forward(x, x.copy(), lengths, epsilon=1e-6)
    response_norm_error(x, lengths, x, x.copy(), epsilon=1e-6)


@compiled
def _inverse(lengths: Any, begin: Any, channels: Any, epsilon: Any) -> Any:
    total = np.float64(0)
    for c in range(channels):
        total += np.float64(lengths[begin + c])
    return np.float32(np.float64(1) / (total / np.float64(channels) + np.float64(epsilon)))


@compiled
def _forward(x: Any, extent: Any, y: Any, y_extent: Any, lengths: Any, epsilon: Any) -> None:
    n, rows, columns, channels, pitch = extent
    pixels = rows * columns
    squares = np.empty(channels, np.float64)
    for sample in range(n):
        squares[:] = 0
        for pixel in range(sample * pixels, (sample + 1) * pixels):
            for c in range(channels):
                value = np.float64(x[pixel * pitch + c])
                squares[c] += value * value
        for c in range(channels):
            lengths[sample * channels + c] = np.float32(np.sqrt(squares[c]))
        inverse = _inverse(lengths, sample * channels, channels, epsilon)
        for pixel in range(sample * pixels, (sample + 1) * pixels):
            for c in range(channels):
                share = lengths[sample * channels + c] * inverse
                y[pixel * y_extent[4] + c] = x[pixel * pitch + c] * share


@compiled
def _error(
    x: Any,
    extent: Any,
    dy: Any,
    dy_extent: Any,
    dx: Any,
    dx_extent: Any,
    lengths: Any,
    epsilon: Any,
) -> None:
    n, rows, columns, channels, pitch = extent
    pixels = rows * columns
    sums = np.empty(channels, np.float64)
    factors = np.empty(channels, np.float32)
    for sample in range(n):
        sums[:] = 0
        begin = sample * channels
        for pixel in range(sample * pixels, (sample + 1) * pixels):
            for c in range(channels):
                error = np.float64(dy[pixel * dy_extent[4] + c])
                sums[c] += error * np.float64(x[pixel * pitch + c])
        inverse = _inverse(lengths, begin, channels, epsilon)
        common = np.float64(0)
        for c in range(channels):
            common += sums[c] * np.float64(lengths[begin + c] * inverse)
        common /= np.float64(channels)
        for c in range(channels):
            length = np.float64(lengths[begin + c])
            factors[c] = np.float32(0)
            if length > 0:
                factors[c] = np.float32((sums[c] - common) * np.float64(inverse) / length)
        for pixel in range(sample * pixels, (sample + 1) * pixels):
            for c in range(channels):
                error = dy[pixel * dy_extent[4] + c] * (lengths[begin + c] * inverse)
                own = x[pixel * pitch + c] * factors[c]
                dx[pixel * dx_extent[4] + c] = error + own
