"""Layer normalisation and RMS normalisation: each row of channels by itself, a token or a pixel.

    mean = sum of x / channels, or 0 for RMS;  variance = sum of (x - mean)^2 / channels
    inverse = 1 / sqrt(variance + epsilon);    n = (x - mean) * inverse
    y = n * scale + shift, or n * scale for RMS

and back, with g = dy * scale:

    dx = ((g - sum of g / channels) - n * (sum of g * n / channels)) * inverse;  RMS has no sum of g
    dscale = sum of dy * n;  dshift = sum of dy

Each sum over channels is 16 sums, of channel mod 16, ascending; then half of them is added to the
other half, four times. The gradients of scale and shift add samples, rows and columns ascending.
(Ba et al., 2016; Zhang and Sennrich, 2019.)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import Floats, compiled, dense, in_place, same_shape, source, target

PARTS = 16
NOTHING: Floats = np.empty(0, np.float32)


def layer_norm_forward(
    x: Floats, y: Floats, statistics: Floats, scale: Floats, shift: Floats, *, epsilon: float
) -> None:
    """Write the layer normalisation of `x` to `y`, both (n, rows, columns, channels), in place.

    `statistics` (n, rows, columns, 2) becomes mean and inverse; `scale` and `shift` have a number
    for each channel. Raise ValueError where shapes do not fit.
    """
    _run_forward(x, y, statistics, scale, shift, epsilon)


def rms_norm_forward(
    x: Floats, y: Floats, statistics: Floats, scale: Floats, *, epsilon: float
) -> None:
    """Write the RMS normalisation of `x` to `y`; see `layer_norm_forward`. The mean in `statistics`
    is 0.
    """
    _run_forward(x, y, statistics, scale, NOTHING, epsilon)


def _run_forward(
    x: Floats, y: Floats, statistics: Floats, scale: Floats, shift: Floats, epsilon: float
) -> None:
    same_shape(x, y, "inputs and outputs")
    maps, row = source(x, "x"), _check(x, statistics, scale, shift)
    _forward(
        *maps,
        *target(y, "y"),
        row,
        dense(scale, "scale"),
        dense(shift, "shift"),
        np.float32(epsilon),
    )


def row_norm_error(
    x: Floats, statistics: Floats, scale: Floats, dy: Floats, dx: Floats, *, centred: bool
) -> None:
    """Write the errors of `x` to `dx`, which may be `dy`, for the errors `dy` of the outputs, in
    place.

    `centred` is True for layer normalisation, False for RMS. Raise ValueError where shapes do not
    fit.
    """
    same_shape(x, dy, "inputs and errors of the outputs")
    same_shape(x, dx, "inputs and their errors")
    row = _check(x, statistics, scale)
    _error(
        *source(x, "x"),
        *source(dy, "dy"),
        *target(dx, "dx"),
        row,
        dense(scale, "scale"),
        bool(centred),
    )


def row_norm_gradient(
    x: Floats,
    statistics: Floats,
    dy: Floats,
    dscale: Floats,
    dshift: Floats | None = None,
    *,
    fresh: bool,
) -> None:
    """Add the gradients of scale and shift to `dscale` and `dshift` in place; where `fresh`, start
    from +0.

    RMS normalisation has no shift. Raise ValueError where shapes do not fit.
    """
    same_shape(x, dy, "inputs and errors of the outputs")
    shift = NOTHING if dshift is None else in_place(dshift, "dshift")
    row = _check(x, statistics, dscale, shift)
    _gradient(
        *source(x, "x"), *source(dy, "dy"), row, in_place(dscale, "dscale"), shift, bool(fresh)
    )


def _check(x: Floats, statistics: Floats, *by_channel: Floats) -> Floats:
    """Return the statistics, flat."""
    if statistics.shape != (*x.shape[:3], 2):
        raise ValueError(f"statistics has shape {statistics.shape}; {(*x.shape[:3], 2)} is needed")
    for numbers in by_channel:
        if numbers.shape != x.shape[3:] and numbers is not NOTHING:
            raise ValueError(
                f"maps {x.shape} need a scale and a shift of shape {x.shape[3:]}, not"
                f" {numbers.shape}"
            )
    return in_place(statistics, "statistics").reshape(-1)


def warm() -> None:
    """Compile all kernels: call each once on tiny arrays, as training calls it."""
    x, statistics, scale = (
        np.ones((1, 1, 1, 2), np.float32),
        np.empty((1, 1, 1, 2), np.float32),
        np.ones(2, np.float32),
    )
    layer_norm_forward(x, x.copy(), statistics, scale, scale, epsilon=1e-5)
    row_norm_error(x, statistics, scale, x, x.copy(), centred=True)
    row_norm_gradient(x, statistics, x, scale, scale.copy(), fresh=True)


# Offsets are unsigned so that loops become vector code, as in pool.py.


@compiled
def _total(parts: Any) -> Any:
    """Return the sum of PARTS numbers, half added to half; change them."""
    half = PARTS // 2
    while half:
        for place in range(half):
            parts[place] += parts[half + place]
        half //= 2
    return parts[0]


@compiled
def _sum(x: Any, at: Any, channels: Any, parts: Any) -> Any:
    parts[:] = 0
    width, count = np.uint64(PARTS), np.uint64(channels)
    for block in range(count // width):
        first = at + block * width
        for place in range(width):
            parts[place] += x[first + place]
    whole = count // width * width
    for place in range(count - whole):
        parts[place] += x[at + whole + place]
    return _total(parts)


@compiled
def _sum_products(a: Any, b: Any, parts: Any) -> Any:
    parts[:] = 0
    width, count = np.uint64(PARTS), np.uint64(a.size)
    for block in range(count // width):
        first = block * width
        for place in range(width):
            parts[place] += a[first + place] * b[first + place]
    whole = count // width * width
    for place in range(count - whole):
        parts[place] += a[whole + place] * b[whole + place]
    return _total(parts)


@compiled
def _forward(
    x: Any,
    extent: Any,
    y: Any,
    y_extent: Any,
    statistics: Any,
    scale: Any,
    shift: Any,
    epsilon: Any,
) -> None:
    n, rows, columns, channels, pitch = extent
    parts, centred = np.empty(PARTS, np.float32), np.empty(channels, np.float32)
    count, mean = np.float32(channels), np.float32(0)
    for pixel in range(n * rows * columns):
        at, to = np.uint64(pixel * pitch), np.uint64(pixel * y_extent[4])
        if shift.size:
            mean = _sum(x, at, channels, parts) / count
        for c in range(np.uint64(channels)):
            centred[c] = x[at + c] - mean
        # From centred values: the mean of squares less the square of the mean would cancel digits.
        inverse = np.float32(1) / np.sqrt(_sum_products(centred, centred, parts) / count + epsilon)
        statistics[2 * pixel], statistics[2 * pixel + 1] = mean, inverse
        if shift.size:
            for c in range(np.uint64(channels)):
                y[to + c] = centred[c] * inverse * scale[c] + shift[c]
        else:
            for c in range(np.uint64(channels)):
                y[to + c] = centred[c] * inverse * scale[c]


@compiled
def _error(
    x: Any,
    extent: Any,
    dy: Any,
    dy_extent: Any,
    dx: Any,
    dx_extent: Any,
    statistics: Any,
    scale: Any,
    is_centred: Any,
) -> None:
    n, rows, columns, channels, pitch = extent
    parts, count = np.empty(PARTS, np.float32), np.float32(channels)
    normal, scaled = np.empty(channels, np.float32), np.empty(channels, np.float32)
    for pixel in range(n * rows * columns):
        at, dy_at, to = (
            np.uint64(pixel * pitch),
            np.uint64(pixel * dy_extent[4]),
            np.uint64(pixel * dx_extent[4]),
        )
        mean, inverse, common = statistics[2 * pixel], statistics[2 * pixel + 1], np.float32(0)
        for c in range(np.uint64(channels)):
            normal[c] = (x[at + c] - mean) * inverse
            scaled[c] = dy[dy_at + c] * scale[c]
        if is_centred:
            common = _sum(scaled, np.uint64(0), channels, parts) / count
        slope = _sum_products(scaled, normal, parts) / count
        for c in range(np.uint64(channels)):
            dx[to + c] = ((scaled[c] - common) - normal[c] * slope) * inverse


@compiled
def _gradient(
    x: Any,
    extent: Any,
    dy: Any,
    dy_extent: Any,
    statistics: Any,
    dscale: Any,
    dshift: Any,
    fresh: Any,
) -> None:
    n, rows, columns, channels, pitch = extent
    if fresh:
        dscale[:] = 0
        dshift[:] = 0
    for pixel in range(n * rows * columns):
        at, dy_at = np.uint64(pixel * pitch), np.uint64(pixel * dy_extent[4])
        mean, inverse = statistics[2 * pixel], statistics[2 * pixel + 1]
        for c in range(np.uint64(channels)):
            dscale[c] += dy[dy_at + c] * ((x[at + c] - mean) * inverse)
        for c in range(np.uint64(dshift.size)):
            dshift[c] += dy[dy_at + c]
