"""Pooling: the maximum, or the average, of each window of a map, as PyTorch defines them.

Kernel, stride and pad are an int, or a pair (rows, columns); a window that does not fit is left out.
Where windows overlap, errors are added up window by window, in the order of the windows.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from .arrays import Floats, dense
from .window import Pair, output_size, pair


def max_forward(x: Floats, *, kernel: Pair, stride: Pair, pad: Pair) -> tuple[Floats, NDArray[np.int32]]:
    """Return the maxima y (n, c, ho, wo) of the windows of x (n, c, h, w), and where in its window each is.

    The places (int32, of y's shape) count row by row within the window; the first of equal values wins.
    The padding never wins. Raise ValueError where no window fits.
    """
    size = _output_size(x.shape, kernel, stride, pad)
    return _max_forward(dense(x, "x"), size, pair(kernel), pair(stride), pair(pad))


def max_error(
    dy: Floats, argmax: NDArray[np.int32], x_shape: tuple[int, ...], *, kernel: Pair, stride: Pair, pad: Pair
) -> Floats:
    """Return dx (x_shape): each error of dy (n, c, ho, wo) goes to the place that `max_forward` gave.

    Raise ValueError where shapes do not fit.
    """
    size = _check(dy.shape, x_shape, kernel, stride, pad)
    if argmax.shape != dy.shape or argmax.dtype != np.int32:
        raise ValueError(f"argmax must be int32 {dy.shape}, not {argmax.dtype} {argmax.shape}")
    places = np.require(argmax, requirements=["C", "A", "W"])
    return _max_error(dense(dy, "dy"), places, size, pair(kernel), pair(stride), pair(pad))


def average_forward(x: Floats, *, kernel: Pair, stride: Pair, pad: Pair) -> Floats:
    """Return the averages (n, c, ho, wo) of the windows of x (n, c, h, w), the padding counted as zeros.

    Raise ValueError where no window fits.
    """
    size = _output_size(x.shape, kernel, stride, pad)
    return _average_forward(dense(x, "x"), size, pair(kernel), pair(stride), pair(pad))


def average_error(dy: Floats, x_shape: tuple[int, ...], *, kernel: Pair, stride: Pair, pad: Pair) -> Floats:
    """Return dx (x_shape): each error of dy (n, c, ho, wo) in equal parts to its window.

    Raise ValueError where shapes do not fit.
    """
    size = _check(dy.shape, x_shape, kernel, stride, pad)
    return _average_error(dense(dy, "dy"), size, pair(kernel), pair(stride), pair(pad))


def _output_size(x_shape: tuple[int, ...], kernel: Pair, stride: Pair, pad: Pair) -> tuple[int, int]:
    if len(x_shape) != 4:
        raise ValueError(f"maps (n, c, h, w) are needed, not {x_shape}")
    return output_size(x_shape[2:], kernel, stride=stride, pad=pad)


def _check(
    dy_shape: tuple[int, ...], x_shape: tuple[int, ...], kernel: Pair, stride: Pair, pad: Pair
) -> tuple[int, int]:
    """Return the size (h, w) of the maps if dy fits them."""
    expected = (*x_shape[:2], *_output_size(x_shape, kernel, stride, pad))
    if dy_shape != expected:
        raise ValueError(f"pooling of maps {x_shape} gives {expected}, but the errors have shape {dy_shape}")
    return pair((x_shape[2], x_shape[3]))


@njit(cache=True, nogil=True)
def _max_forward(x: Any, size: Any, kernel: Any, stride: Any, pad: Any) -> Any:
    """All windows of a row together, one place in each at a time: this branches on no value, and so is fast."""
    n, channels, h, w = x.shape
    y = np.empty((n, channels, size[0], size[1]), np.float32)
    argmax = np.empty((n, channels, size[0], size[1]), np.int32)
    value, best, place = np.empty(size[1], np.float32), np.empty(size[1], np.float32), np.empty(size[1], np.int32)
    begins, ends = np.empty(kernel[1], np.int64), np.empty(kernel[1], np.int64)
    for v in range(kernel[1]):  # the windows whose column v is not in the padding
        begins[v] = max(0, -((v - pad[1]) // stride[1]))
        ends[v] = min(size[1], (w - 1 - v + pad[1]) // stride[1] + 1)
    for sample in range(n):
        for channel in range(channels):
            for row in range(size[0]):
                best[:], place[:] = -np.inf, -1
                top = row * stride[0] - pad[0]
                for u in range(max(0, -top), min(kernel[0], h - top)):
                    line = x[sample, channel, top + u]
                    for v in range(kernel[1]):
                        left, number = v - pad[1], np.int32(u * kernel[1] + v)
                        for i in range(begins[v], ends[v]):
                            value[i] = line[left + i * stride[1]]
                        for i in range(begins[v], ends[v]):
                            new, old, spot = value[i], best[i], place[i]
                            wins = (new > old) | np.isnan(new) | (spot < 0)
                            best[i] = new if wins else old
                            place[i] = number if wins else spot
                for i in range(size[1]):
                    y[sample, channel, row, i], argmax[sample, channel, row, i] = best[i], place[i]
    return y, argmax


@njit(cache=True, nogil=True)
def _max_error(dy: Any, argmax: Any, size: Any, kernel: Any, stride: Any, pad: Any) -> Any:
    n, channels, ho, wo = dy.shape
    dx = np.zeros((n, channels, size[0], size[1]), np.float32)
    down = np.arange(kernel[0] * kernel[1]) // kernel[1]  # looked up: a division is slow
    for sample in range(n):
        for channel in range(channels):
            for row in range(ho):
                for column in range(wo):
                    place = argmax[sample, channel, row, column]
                    r = row * stride[0] - pad[0] + down[place]
                    c = column * stride[1] - pad[1] + place - down[place] * kernel[1]
                    dx[sample, channel, r, c] += dy[sample, channel, row, column]
    return dx


@njit(cache=True, nogil=True)
def _average_forward(x: Any, size: Any, kernel: Any, stride: Any, pad: Any) -> Any:
    n, channels, h, w = x.shape
    y = np.empty((n, channels, size[0], size[1]), np.float32)
    area = np.float32(kernel[0] * kernel[1])
    for sample in range(n):
        for channel in range(channels):
            for row in range(size[0]):
                top = row * stride[0] - pad[0]
                for column in range(size[1]):
                    left = column * stride[1] - pad[1]
                    total = np.float32(0)
                    for r in range(max(top, 0), min(top + kernel[0], h)):
                        for c in range(max(left, 0), min(left + kernel[1], w)):
                            total += x[sample, channel, r, c]
                    y[sample, channel, row, column] = total / area
    return y


@njit(cache=True, nogil=True)
def _average_error(dy: Any, size: Any, kernel: Any, stride: Any, pad: Any) -> Any:
    n, channels, ho, wo = dy.shape
    h, w = size
    dx = np.zeros((n, channels, h, w), np.float32)
    area = np.float32(kernel[0] * kernel[1])
    for sample in range(n):
        for channel in range(channels):
            for row in range(ho):
                top = row * stride[0] - pad[0]
                for column in range(wo):
                    left = column * stride[1] - pad[1]
                    part = dy[sample, channel, row, column] / area
                    for r in range(max(top, 0), min(top + kernel[0], h)):
                        for c in range(max(left, 0), min(left + kernel[1], w)):
                            dx[sample, channel, r, c] += part
    return dx
