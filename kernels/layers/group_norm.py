"""Group normalisation: the channels of a group, over all rows and columns of a sample, together.

    mean = sum of x / count;  variance = sum of (x - mean)^2 / count, of the count values of a group
    inverse = 1 / sqrt(variance + epsilon);  n = (x - mean) * inverse
    y = n * scale + shift

and back, with g = dy * scale:

    dx = ((g - sum of g / count) - n * (sum of g * n / count)) * inverse
    dscale = sum of dy * n;  dshift = sum of dy

Sums over a group are in double precision, rows, columns and channels ascending, and rounded once.
The gradients of scale and shift add samples, rows and columns ascending. (Wu and He, 2018, of which
instance normalisation, Ulyanov et al., 2016, is that of groups of one channel.)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import Floats, compiled, dense, in_place, same_shape, source, target


def group_norm_forward(
    x: Floats, y: Floats, statistics: Floats, scale: Floats, shift: Floats, *, epsilon: float
) -> None:
    """Write the group normalisation of `x` to `y`, both (n, rows, columns, channels), in place.

    `statistics` (n, groups, 2) becomes mean and inverse; `scale` and `shift` have a number for each
    channel. Raise ValueError where shapes do not fit.
    """
    same_shape(x, y, "inputs and outputs")
    own = _check(x, statistics, scale, shift)
    _forward(
        *source(x, "x"),
        *target(y, "y"),
        own,
        statistics.shape[1],
        dense(scale, "scale"),
        dense(shift, "shift"),
        np.float32(epsilon),
    )


def group_norm_error(x: Floats, statistics: Floats, scale: Floats, dy: Floats, dx: Floats) -> None:
    """Write the errors of `x` to `dx`, which may be `dy`, for the errors `dy` of the outputs, in
    place. Raise ValueError where shapes do not fit.
    """
    same_shape(x, dy, "inputs and errors of the outputs")
    same_shape(x, dx, "inputs and their errors")
    own = _check(x, statistics, scale)
    _error(
        *source(x, "x"),
        *source(dy, "dy"),
        *target(dx, "dx"),
        own,
        statistics.shape[1],
        dense(scale, "scale"),
    )


def group_norm_gradient(
    x: Floats, statistics: Floats, dy: Floats, dscale: Floats, dshift: Floats, *, fresh: bool
) -> None:
    """Add the gradients of scale and shift to `dscale` and `dshift` in place; where `fresh`, start
    from +0. Raise ValueError where shapes do not fit.
    """
    same_shape(x, dy, "inputs and errors of the outputs")
    own = _check(x, statistics, dscale, dshift)
    _gradient(
        *source(x, "x"),
        *source(dy, "dy"),
        own,
        statistics.shape[1],
        in_place(dscale, "dscale"),
        in_place(dshift, "dshift"),
        bool(fresh),
    )


def _check(x: Floats, statistics: Floats, *by_channel: Floats) -> Floats:
    """Return the statistics, flat."""
    fits = statistics.ndim == 3 and statistics.shape[::2] == (len(x), 2) and statistics.shape[1]
    if not fits or x.shape[3] % statistics.shape[1]:
        raise ValueError(
            f"statistics has shape {statistics.shape}; ({len(x)}, groups, 2) is needed, of groups"
            f" that divide {x.shape[3]} channels"
        )
    for numbers in by_channel:
        if numbers.shape != x.shape[3:]:
            raise ValueError(
                f"maps {x.shape} need a scale and a shift of shape {x.shape[3:]}, not"
                f" {numbers.shape}"
            )
    return in_place(statistics, "statistics").reshape(-1)


def warm() -> None:
    """Compile all kernels: call each once on tiny arrays, as training calls it."""
    x, scale = np.ones((1, 1, 1, 2), np.float32), np.ones(2, np.float32)
    statistics = np.empty((1, 1, 2), np.float32)
    group_norm_forward(x, x.copy(), statistics, scale, scale, epsilon=1e-5)
    group_norm_error(x, statistics, scale, x, x.copy())
    group_norm_gradient(x, statistics, x, scale, scale.copy(), fresh=True)


@compiled
def _forward(
    x: Any,
    extent: Any,
    y: Any,
    y_extent: Any,
    statistics: Any,
    groups: Any,
    scale: Any,
    shift: Any,
    epsilon: Any,
) -> None:
    n, rows, columns, channels, pitch = extent
    pixels, size = rows * columns, channels // groups
    sums = np.empty(groups, np.float64)
    count = np.float64(pixels * size)
    for sample in range(n):
        sums[:] = 0
        for pixel in range(sample * pixels, (sample + 1) * pixels):
            for group in range(groups):
                for c in range(group * size, (group + 1) * size):
                    sums[group] += np.float64(x[pixel * pitch + c])
        for group in range(groups):
            statistics[2 * (sample * groups + group)] = np.float32(sums[group] / count)
        sums[:] = 0
        # From centred values: the mean of squares less the square of the mean would cancel digits.
        for pixel in range(sample * pixels, (sample + 1) * pixels):
            for group in range(groups):
                mean = statistics[2 * (sample * groups + group)]
                for c in range(group * size, (group + 1) * size):
                    centred = np.float64(x[pixel * pitch + c] - mean)
                    sums[group] += centred * centred
        for group in range(groups):
            root = np.sqrt(sums[group] / count + np.float64(epsilon))
            statistics[2 * (sample * groups + group) + 1] = np.float32(np.float64(1) / root)
        for pixel in range(sample * pixels, (sample + 1) * pixels):
            for group in range(groups):
                own = 2 * (sample * groups + group)
                mean, inverse = statistics[own], statistics[own + 1]
                for c in range(group * size, (group + 1) * size):
                    normal = (x[pixel * pitch + c] - mean) * inverse
                    y[pixel * y_extent[4] + c] = normal * scale[c] + shift[c]


@compiled
def _error(
    x: Any,
    extent: Any,
    dy: Any,
    dy_extent: Any,
    dx: Any,
    dx_extent: Any,
    statistics: Any,
    groups: Any,
    scale: Any,
) -> None:
    n, rows, columns, channels, pitch = extent
    pixels, size = rows * columns, channels // groups
    sums, slopes = np.empty(groups, np.float64), np.empty(groups, np.float64)
    count = np.float64(pixels * size)
    for sample in range(n):
        sums[:] = 0
        slopes[:] = 0
        for pixel in range(sample * pixels, (sample + 1) * pixels):
            for group in range(groups):
                own = 2 * (sample * groups + group)
                mean, inverse = statistics[own], statistics[own + 1]
                for c in range(group * size, (group + 1) * size):
                    normal = (x[pixel * pitch + c] - mean) * inverse
                    scaled = dy[pixel * dy_extent[4] + c] * scale[c]
                    sums[group] += np.float64(scaled)
                    slopes[group] += np.float64(scaled) * np.float64(normal)
        for pixel in range(sample * pixels, (sample + 1) * pixels):
            for group in range(groups):
                own = 2 * (sample * groups + group)
                mean, inverse = statistics[own], statistics[own + 1]
                common, slope = np.float32(sums[group] / count), np.float32(slopes[group] / count)
                for c in range(group * size, (group + 1) * size):
                    normal = (x[pixel * pitch + c] - mean) * inverse
                    scaled = dy[pixel * dy_extent[4] + c] * scale[c]
                    dx[pixel * dx_extent[4] + c] = ((scaled - common) - normal * slope) * inverse


@compiled
def _gradient(
    x: Any,
    extent: Any,
    dy: Any,
    dy_extent: Any,
    statistics: Any,
    groups: Any,
    dscale: Any,
    dshift: Any,
    fresh: Any,
) -> None:
    n, rows, columns, channels, pitch = extent
    pixels, size = rows * columns, channels // groups
    if fresh:
        dscale[:] = 0
        dshift[:] = 0
    for pixel in range(n * pixels):
        for group in range(groups):
            own = 2 * (pixel // pixels * groups + group)
            mean, inverse = statistics[own], statistics[own + 1]
            for c in range(group * size, (group + 1) * size):
                error = dy[pixel * dy_extent[4] + c]
                dscale[c] += error * ((x[pixel * pitch + c] - mean) * inverse)
                dshift[c] += error
