"""Local response normalisation and dropout.

The normalisation is across channels, as in AlexNet and `torch.nn.LocalResponseNorm`.

    scale[c] = k + alpha / size * sum of x[j]^2 over the window c - size // 2 .. c + (size - 1) // 2
    y[c] = x[c] / scale[c]^beta

Channels outside the map count as zeros. Sums run over channels ascending.

Dropout masks depend only on the seed, layer, sample and element: each element has a number from a
counter-based generator (splitmix64), so that the same sample gets the same mask on any device, in
any micro-batch, in any order.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..jit import Floats, compiled, same_shape, source, target


def lrn_forward(
    x: Floats, y: Floats, scale: Floats, *, size: int, alpha: float, beta: float, k: float
) -> None:
    """Write the normalised `x` to `y`, and to `scale` what `lrn_error` needs; all are (n, rows,
    columns, channels).

    Raise ValueError where shapes differ, or the window is empty.
    """
    _check(size, x, y, scale)
    maps = *source(x, "x"), *target(y, "y"), *target(scale, "scale")
    _forward(*maps, int(size), np.float32(alpha), np.float32(beta), np.float32(k))


def lrn_error(
    x: Floats,
    y: Floats,
    scale: Floats,
    dy: Floats,
    dx: Floats,
    *,
    size: int,
    alpha: float,
    beta: float,
    k: float,
) -> None:
    """Write to `dx` the errors of `x` for the errors `dy` of `y`; all are (n, rows, columns,
    channels).

    `dx` may be `dy`. `k` is not used, because `scale` includes it; it is here so that both
    directions are called alike. Raise ValueError where shapes differ, or the window is empty.
    """
    _check(size, x, y, scale, dy, dx)
    maps = (
        *source(x, "x"),
        *source(y, "y"),
        *source(scale, "scale"),
        *source(dy, "dy"),
        *target(dx, "dx"),
    )
    _error(*maps, int(size), np.float32(alpha), np.float32(beta))


def _check(size: int, x: Floats, *others: Floats) -> None:
    if size < 1:
        raise ValueError(f"the window must hold at least one channel, not {size}")
    for other in others:
        same_shape(x, other, "x and all that goes with it")


def warm() -> None:
    """Compile all kernels: call each once on tiny arrays, as training calls it."""
    rule: dict[str, Any] = {"size": 3, "alpha": 1e-4, "beta": 0.75, "k": 2.0}
    x = np.ones((1, 3, 3, 2), np.float32)
    y, scale, dx = np.empty_like(x), np.empty_like(x), np.empty_like(x)
    lrn_forward(x, y, scale, **rule)
    lrn_error(x, y, scale, y, dx, **rule)
    dropout_mask(
        np.empty((1, 3, 3, 2), np.float32), rate=0.5, seed=0, layer=0, samples=np.zeros(1, np.int64)
    )


# Offsets are unsigned so that loops become vector code, as in pool.py.


@compiled
def _at(pixel: Any, extent: Any) -> Any:
    return np.uint64(pixel * extent[4])


@compiled
def _sum_windows(terms: Any, total: Any) -> None:
    """Set total[c] to the sum of terms[c] to terms[c + terms.size - total.size]."""
    total[:] = 0
    for place in range(terms.size - total.size + 1):
        first = np.uint64(place)
        for c in range(np.uint64(total.size)):
            total[c] += terms[first + c]


@compiled
def _divide_by_power(
    out: Any, to: Any, x: Any, at: Any, scale: Any, scale_at: Any, channels: Any, beta: Any
) -> None:
    """Set out = x / scale ** beta; for the usual 3/4 by square roots, which are fast and equal on
    all processors.
    """
    if beta == np.float32(0.75):
        for c in range(channels):
            root = np.sqrt(scale[scale_at + c])
            out[to + c] = x[at + c] / (root * np.sqrt(root))
    else:
        for c in range(channels):
            out[to + c] = x[at + c] / scale[scale_at + c] ** beta


@compiled
def _forward(
    x: Any,
    extent: Any,
    y: Any,
    y_extent: Any,
    scale: Any,
    scale_extent: Any,
    size: Any,
    alpha: Any,
    beta: Any,
    k: Any,
) -> None:
    n, rows, columns, channels, _ = extent
    before, after = min(size // 2, channels - 1), min((size - 1) // 2, channels - 1)
    squares = np.zeros(
        before + channels + after, np.float32
    )  # of a pixel, with zeros for channels outside
    total, share = np.empty(channels, np.float32), alpha / np.float32(size)
    first, count = np.uint64(before), np.uint64(channels)
    for pixel in range(n * rows * columns):
        at, y_at, scale_at = _at(pixel, extent), _at(pixel, y_extent), _at(pixel, scale_extent)
        for c in range(count):
            squares[first + c] = x[at + c] * x[at + c]
        _sum_windows(squares, total)
        for c in range(count):
            scale[scale_at + c] = k + share * total[c]
        _divide_by_power(y, y_at, x, at, scale, scale_at, count, beta)


@compiled
def _error(
    x: Any,
    extent: Any,
    y: Any,
    y_extent: Any,
    scale: Any,
    scale_extent: Any,
    dy: Any,
    dy_extent: Any,
    dx: Any,
    dx_extent: Any,
    size: Any,
    alpha: Any,
    beta: Any,
) -> None:
    n, rows, columns, channels, _ = extent
    # the channels whose windows contain a channel: its window, mirrored
    before, after = min((size - 1) // 2, channels - 1), min(size // 2, channels - 1)
    ratios = np.zeros(before + channels + after, np.float32)
    total, factor = np.empty(channels, np.float32), np.float32(2) * alpha * beta / np.float32(size)
    first, count = np.uint64(before), np.uint64(channels)
    for pixel in range(n * rows * columns):
        at, y_at, scale_at = _at(pixel, extent), _at(pixel, y_extent), _at(pixel, scale_extent)
        dy_at, dx_at = _at(pixel, dy_extent), _at(pixel, dx_extent)
        for c in range(count):
            ratios[first + c] = dy[dy_at + c] * y[y_at + c] / scale[scale_at + c]
        _sum_windows(ratios, total)
        _divide_by_power(dx, dx_at, dy, dy_at, scale, scale_at, count, beta)
        for c in range(count):
            dx[dx_at + c] -= factor * x[at + c] * total[c]


def dropout_mask(
    out: Floats, *, rate: float, seed: int, layer: int, samples: NDArray[np.int64], first: int = 0
) -> None:
    """Fill `out` (n, rows, columns, channels): 0 with probability `rate`, else 1 / (1 - rate).

    `samples` (n,) holds the number of each sample, counted over the whole training; `first` is the
    number of a sample's first element. Raise ValueError unless there is one number for each sample
    and 0 <= `rate` < 1.
    """
    if not 0 <= rate < 1:
        raise ValueError(f"the rate must be at least 0 and less than 1, not {rate}")
    if samples.shape != out.shape[:1]:
        raise ValueError(
            f"one sample number for each of {len(out)} samples is needed, not {samples.shape}"
        )
    numbers = np.require(samples, dtype=np.int64, requirements=["C", "A", "W"])
    _mask(*target(out, "out"), numbers, float(rate), seed, layer, first)


@compiled
def _mix(z: Any) -> Any:
    """Apply the finaliser of splitmix64: every bit of z changes each bit of the result with
    probability 1/2.
    """
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@compiled
def _mask(
    out: Any, extent: Any, samples: Any, rate: Any, seed: Any, layer: Any, first: Any
) -> None:
    """Fill the mask; the elements of a sample count channel by channel, row by row within each."""
    n, rows, columns, channels, pitch = extent
    step = np.uint64(0x9E3779B97F4A7C15)
    kept = np.float32(1 / (1 - rate))
    limit = np.uint64(rate * 2.0**53)
    stream = _mix(_mix(np.uint64(seed) + step) + np.uint64(layer) + step)
    across = np.uint64(rows * columns) * step  # from one channel to the next
    for sample in range(n):
        key = _mix(stream + np.uint64(samples[sample]) + step) + np.uint64(first) * step
        for pixel in range(rows * columns):
            to, place = (
                np.uint64((sample * rows * columns + pixel) * pitch),
                key + np.uint64(pixel + 1) * step,
            )
            for c in range(np.uint64(channels)):
                number = _mix(place) >> np.uint64(11)
                out[to + c] = np.float32(0) if number < limit else kept
                place += across
