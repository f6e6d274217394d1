"""Pooling: the maximum, or the average, of each window of a map, as PyTorch defines them.

Maps are (n, rows, columns, channels). Kernel, stride and pad are an int, or a pair (rows, columns);
a window that does not fit is left out, unless with `ceil` it begins within. Where windows overlap,
errors are added in the order of the windows. Results overwrite arrays of the caller.
"""

from typing import Any

import numpy as np

from ..jit import Bytes, Floats, byte_maps, compiled, source, target
from ..window import MOST_PLACES, Pair, output_size, pair

_Window = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]


def max_forward(
    x: Floats,
    y: Floats,
    places: Bytes,
    *,
    kernel: Pair,
    stride: Pair,
    pad: Pair,
    ceil: bool = False,
) -> None:
    """Write the maxima of the windows of `x` to `y`, and their places to `places` (uint8, of y's
    shape).

    Places count row by row within the window. The first of equal values wins, a NaN wins over all,
    and the padding never wins. Raise ValueError where shapes do not fit, or a window has more than
    255 places.
    """
    window = _check(x, y, "outputs", kernel, stride, pad, ceil)
    flat = _flat_places(places, y, window)
    _max_forward(*source(x, "x"), *target(y, "y"), flat, window)


def max_error(
    dy: Floats,
    places: Bytes,
    dx: Floats,
    *,
    kernel: Pair,
    stride: Pair,
    pad: Pair,
    ceil: bool = False,
) -> None:
    """Write the errors `dy` of the maxima to `dx`: each goes to the place that `max_forward` gave.

    Raise ValueError where shapes do not fit.
    """
    window = _check(dx, dy, "errors", kernel, stride, pad, ceil)
    flat = _flat_places(places, dy, window)
    _max_error(*target(dx, "dx"), *source(dy, "dy"), flat, window)


def average_forward(
    x: Floats,
    y: Floats,
    *,
    kernel: Pair,
    stride: Pair,
    pad: Pair,
    count_include_pad: bool = True,
    ceil: bool = False,
) -> None:
    """Write the averages of the windows of `x` to `y`, the padding counted as zeros or not at all.

    Raise ValueError where shapes do not fit.
    """
    window = _check(x, y, "outputs", kernel, stride, pad, ceil)
    _average_forward(*source(x, "x"), *target(y, "y"), window, bool(count_include_pad))


def average_error(
    dy: Floats,
    dx: Floats,
    *,
    kernel: Pair,
    stride: Pair,
    pad: Pair,
    count_include_pad: bool = True,
    ceil: bool = False,
) -> None:
    """Write the errors `dy` of the averages to `dx`: each in equal parts to the places that it
    counted.

    Raise ValueError where shapes do not fit.
    """
    window = _check(dx, dy, "errors", kernel, stride, pad, ceil)
    _average_error(*target(dx, "dx"), *source(dy, "dy"), window, bool(count_include_pad))


def _check(
    x: Floats, y: Floats, name: str, kernel: Pair, stride: Pair, pad: Pair, ceil: bool
) -> _Window:
    """Return kernel, stride and pad as pairs. Raise ValueError unless `y`, called `name`, has the
    shape for `x`.
    """
    if x.ndim != 4:
        raise ValueError(f"maps (n, rows, columns, channels) are needed, not {x.shape}")
    window = pair(kernel), pair(stride), pair(pad)
    n, rows, columns, channels = x.shape
    expected = (
        n,
        *output_size((rows, columns), window[0], stride=window[1], pad=window[2], ceil=ceil),
        channels,
    )
    if y.shape != expected:
        raise ValueError(
            f"pooling of maps {x.shape} gives {expected}, but the {name} have shape {y.shape}"
        )
    return window


def _flat_places(places: Bytes, y: Floats, window: _Window) -> Bytes:
    (rows, columns), _, _ = window
    if rows * columns > MOST_PLACES:
        raise ValueError(
            f"the maximum is taken of at most {MOST_PLACES} places: a kernel of {rows} x {columns}"
            " is too large"
        )
    flat, _ = byte_maps(places, y, "places")
    return flat


def warm() -> None:
    """Compile all kernels: call each once on tiny arrays, as training calls it."""
    window: dict[str, Any] = {"kernel": 2, "stride": 1, "pad": 0}
    x, y = np.ones((1, 3, 3, 2), np.float32), np.empty((1, 2, 2, 2), np.float32)
    places = np.empty(y.shape, np.uint8)
    max_forward(x, y, places, **window)
    max_error(y, places, x, **window)
    average_forward(x, y, **window)
    average_error(y, x, **window)


# Offsets are unsigned below: Numba then omits its check for negative indices, and the loops over
# channels become vector code.


@compiled
def _better(new: Any, new_place: Any, best: Any, place: Any) -> Any:
    wins = (new > best) | np.isnan(new)
    return (new if wins else best), (new_place if wins else place)


@compiled
def _list_taps(top: Any, left: Any, kernel: Any, h: Any, w: Any, taps: Any, numbers: Any) -> Any:
    """List a window's pixels that are not padding, counted from its corner, and their places;
    return their number.

    The last one is repeated three times.
    """
    count = 0
    for u in range(max(0, -top), min(kernel[0], h - top)):
        for v in range(max(0, -left), min(kernel[1], w - left)):
            taps[count], numbers[count] = u * w + v, u * kernel[1] + v
            count += 1
    for k in range(count, count + 3):
        taps[k], numbers[k] = taps[count - 1], numbers[count - 1]
    return count


@compiled
def _max_forward(x: Any, x_extent: Any, y: Any, y_extent: Any, places: Any, window: Any) -> None:
    """Take four taps at a time, to load and store y and places less often; a repeated tap does no
    harm.
    """
    (_, h, w, _, x_pitch), (n, ho, wo, channels, y_pitch), (kernel, stride, pad) = (
        x_extent,
        y_extent,
        window,
    )
    taps, numbers = (
        np.empty(kernel[0] * kernel[1] + 3, np.int64),
        np.empty(kernel[0] * kernel[1] + 3, np.uint8),
    )
    out, count, listed = 0, 0, False
    for sample in range(n):
        for row in range(ho):
            for column in range(wo):
                top, left = row * stride[0] - pad[0], column * stride[1] - pad[1]
                inside = 0 <= top <= h - kernel[0] and 0 <= left <= w - kernel[1]
                if not (inside and listed):  # all windows without padding have the same taps
                    count, listed = _list_taps(top, left, kernel, h, w, taps, numbers), inside
                corner = (sample * h + top) * w + left
                to, place_at = np.uint64(out * y_pitch), np.uint64(out * channels)
                out += 1
                for k in range(0, count, 4):
                    na, nb, nc, nd = numbers[k], numbers[k + 1], numbers[k + 2], numbers[k + 3]
                    a, b = (
                        np.uint64((corner + taps[k]) * x_pitch),
                        np.uint64((corner + taps[k + 1]) * x_pitch),
                    )
                    c, d = (
                        np.uint64((corner + taps[k + 2]) * x_pitch),
                        np.uint64((corner + taps[k + 3]) * x_pitch),
                    )
                    if k == 0:
                        for i in range(np.uint64(channels)):
                            best, place = _better(x[b + i], nb, x[a + i], na)
                            best, place = _better(x[c + i], nc, best, place)
                            best, place = _better(x[d + i], nd, best, place)
                            y[to + i], places[place_at + i] = best, place
                    else:
                        for i in range(np.uint64(channels)):
                            best, place = _better(x[a + i], na, y[to + i], places[place_at + i])
                            best, place = _better(x[b + i], nb, best, place)
                            best, place = _better(x[c + i], nc, best, place)
                            best, place = _better(x[d + i], nd, best, place)
                            y[to + i], places[place_at + i] = best, place


@compiled
def _max_error(dx: Any, dx_extent: Any, dy: Any, dy_extent: Any, places: Any, window: Any) -> None:
    (_, h, w, _, dx_pitch), (n, ho, wo, channels, dy_pitch), (kernel, stride, pad) = (
        dx_extent,
        dy_extent,
        window,
    )
    overlap = _prepare(dx, dx_extent, dy_extent, window)
    out = 0
    for sample in range(n):
        for row in range(ho):
            top = row * stride[0] - pad[0]
            for column in range(wo):
                left = column * stride[1] - pad[1]
                at, place_at = np.uint64(out * dy_pitch), np.uint64(out * channels)
                out += 1
                for r in range(max(top, 0), min(top + kernel[0], h)):
                    for c in range(max(left, 0), min(left + kernel[1], w)):
                        to = np.uint64(((sample * h + r) * w + c) * dx_pitch)
                        number = np.uint8((r - top) * kernel[1] + c - left)
                        if overlap:
                            for i in range(np.uint64(channels)):
                                dx[to + i] += (
                                    dy[at + i] if places[place_at + i] == number else np.float32(0)
                                )
                        else:  # 0 + as above, for the same sign of a zero
                            for i in range(np.uint64(channels)):
                                part = (
                                    dy[at + i] if places[place_at + i] == number else np.float32(0)
                                )
                                dx[to + i] = np.float32(0) + part


@compiled
def _prepare(dx: Any, dx_extent: Any, dy_extent: Any, window: Any) -> Any:
    """Zero dx, unless each of its pixels is in exactly one window; return whether windows
    overlap.
    """
    (n, h, w, channels, pitch), (_, ho, wo, _, _), (kernel, stride, pad) = (
        dx_extent,
        dy_extent,
        window,
    )
    # Rows and columns behind the last window are in none, and have no error.
    covered = ho * stride[0] - pad[0] >= h and wo * stride[1] - pad[1] >= w
    if stride != kernel or not covered:
        for pixel in range(n * h * w):
            dx[pixel * pitch : pixel * pitch + channels] = 0
    return stride[0] < kernel[0] or stride[1] < kernel[1]


@compiled
def _counted(top: Any, left: Any, kernel: Any, pad: Any, h: Any, w: Any, counts_pad: Any) -> Any:
    """Return the number of places of a window that its average counts, as a float32; at least 1.

    Those beyond the padding are not counted.
    """
    if counts_pad:
        whole = min(top + kernel[0], h + pad[0]) - top
        return np.float32(whole * (min(left + kernel[1], w + pad[1]) - left))
    down, across = min(top + kernel[0], h) - max(top, 0), min(left + kernel[1], w) - max(left, 0)
    return np.float32(max(down * across, 1))


@compiled
def _average_forward(
    x: Any, x_extent: Any, y: Any, y_extent: Any, window: Any, counts_pad: Any
) -> None:
    (_, h, w, _, x_pitch), (n, ho, wo, channels, y_pitch), (kernel, stride, pad) = (
        x_extent,
        y_extent,
        window,
    )
    out = 0
    for sample in range(n):
        for row in range(ho):
            top = row * stride[0] - pad[0]
            for column in range(wo):
                left = column * stride[1] - pad[1]
                area = _counted(top, left, kernel, pad, h, w, counts_pad)
                to = np.uint64(out * y_pitch)
                out += 1
                for i in range(np.uint64(channels)):
                    y[to + i] = 0
                for r in range(max(top, 0), min(top + kernel[0], h)):
                    for c in range(max(left, 0), min(left + kernel[1], w)):
                        at = np.uint64(((sample * h + r) * w + c) * x_pitch)
                        for i in range(np.uint64(channels)):
                            y[to + i] += x[at + i]
                for i in range(np.uint64(channels)):
                    y[to + i] = y[to + i] / area


@compiled
def _average_error(
    dx: Any, dx_extent: Any, dy: Any, dy_extent: Any, window: Any, counts_pad: Any
) -> None:
    (_, h, w, _, dx_pitch), (n, ho, wo, channels, dy_pitch), (kernel, stride, pad) = (
        dx_extent,
        dy_extent,
        window,
    )
    part = np.empty(channels, np.float32)
    overlap = _prepare(dx, dx_extent, dy_extent, window)
    out = 0
    for sample in range(n):
        for row in range(ho):
            top = row * stride[0] - pad[0]
            for column in range(wo):
                left = column * stride[1] - pad[1]
                area = _counted(top, left, kernel, pad, h, w, counts_pad)
                at = np.uint64(out * dy_pitch)
                out += 1
                for i in range(np.uint64(channels)):
                    # Makes +0 of -0, as adding to a zeroed map does where windows overlap.
                    part[i] = np.float32(0) + dy[at + i] / area
                for r in range(max(top, 0), min(top + kernel[0], h)):
                    for c in range(max(left, 0), min(left + kernel[1], w)):
                        to = np.uint64(((sample * h + r) * w + c) * dx_pitch)
                        if overlap:
                            for i in range(np.uint64(channels)):
                                dx[to + i] += part[i]
                        else:
                            for i in range(np.uint64(channels)):
                                dx[to + i] = part[i]
