"""Convolution of float32 maps in NCHW order: forward, error and gradient, bit-exact under any cut.

These are FP, EB and PG of FPDeep (sections 5.3, 5.4, 5.5; equations 1, 2, 3):

- `forward`, FP: y[n, o, r, c] = sum of x[n, i, r * stride + u - pad, c * stride + v - pad] * w[o, i, u, v]
- `error`, EB: dx, the derivative by x of sum(dy * y)
- `gradient`, PG: dw, the derivative by w of sum(dy * y)

Every value takes its products one by one, each by one fused multiply-add, in this order:

- forward: input channel, kernel row, kernel column, all ascending
- error: output channel descending, then kernel row, kernel column ascending
- gradient: sample, output row, output column, all ascending

and starts from a given partial sum, or from +0. So channels may be summed in slices that pass their
partial sums on (forward: from low to high, error: from high to low), and samples in micro-batches,
with the same bits. Padding takes part as zeros (an infinite weight at a padded place gives a NaN).

Stride and pad are an int, or a pair (rows, columns). A fully connected layer is a convolution whose
kernel is as large as the map. All work is done by `microkernel.contract`; this file makes its tables.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from .arrays import Floats, dense, in_place, of_float32
from .microkernel import contract
from .window import Pair, output_size, pair

Shape = tuple[int, int, int, int]


def forward(x: Floats, w: Floats, *, stride: Pair, pad: Pair, partial: Floats | None = None) -> Floats:
    """Convolve x (n, ic, h, w) with w (oc, ic, kh, kw); return y (n, oc, ho, wo), a new array.

    `partial` (n, oc, ho, wo) is the sum over the input channels before these. Raise ValueError where
    shapes do not fit, TypeError where an array is not float32.
    """
    y = _start(output_shape(x.shape, w.shape, stride=stride, pad=pad), partial, "partial")
    add_forward(y, x, w, stride=stride, pad=pad)
    return y


def error(
    dy: Floats, w: Floats, x_shape: tuple[int, ...], *, stride: Pair, pad: Pair, partial: Floats | None = None
) -> Floats:
    """Return dx, of shape x_shape (n, ic, h, w), for dy (n, oc, ho, wo) and w (oc, ic, kh, kw), a new array.

    `partial` (n, ic, h, w) is the sum over the output channels after these. Raise ValueError where
    shapes do not fit, TypeError where an array is not float32.
    """
    dx = _start(tuple(x_shape), partial, "partial")
    add_error(dx, dy, w, stride=stride, pad=pad)
    return dx


def gradient(
    x: Floats, dy: Floats, w_shape: tuple[int, ...], *, stride: Pair, pad: Pair, accumulate: Floats | None = None
) -> Floats:
    """Return dw, of shape w_shape (oc, ic, kh, kw), for x (n, ic, h, w) and dy (n, oc, ho, wo), a new array.

    `accumulate` (oc, ic, kh, kw) is the sum over the samples before these. Raise ValueError where
    shapes do not fit, TypeError where an array is not float32.
    """
    dw = _start(tuple(w_shape), accumulate, "accumulate")
    add_gradient(dw, x, dy, stride=stride, pad=pad)
    return dw


def add_forward(y: Floats, x: Floats, w: Floats, *, stride: Pair, pad: Pair) -> None:
    """As `forward`, added to y in place; y is C-contiguous."""
    _check(x.shape, w.shape, y.shape, stride, pad)
    target, (sh, sw), (ph, pw) = in_place(y, "y").reshape(-1), pair(stride), pair(pad)
    if _whole_map(x.shape, w.shape, (ph, pw)):
        x, w = _as_pixels(x), _as_pixels(w)
    (n, oc, ho, wo), (_, ic, kh, kw) = y.shape, w.shape
    padded = _padded(x, "x", (ph, ph), (pw, pw))
    _, _, hp, wp = padded.shape
    taps = ic * kh * kw
    contract(
        target,
        _offsets((n, oc * ho * wo), (ho * wo, 1)),
        _offsets((oc, ho * wo)),
        padded.reshape(-1),
        _offsets((n, ic * hp * wp), (ho, sh * wp), (wo, sw)),
        _offsets((ic, hp * wp), (kh, wp), (kw, 1)),
        dense(w, "w").reshape(-1),
        _offsets((oc, taps)),
        _offsets((taps, 1)),
    )


def add_error(dx: Floats, dy: Floats, w: Floats, *, stride: Pair, pad: Pair) -> None:
    """As `error`, added to dx in place; dx is C-contiguous."""
    _check(dx.shape, w.shape, dy.shape, stride, pad)
    target, (sh, sw), (ph, pw) = in_place(dx, "dx").reshape(-1), pair(stride), pair(pad)
    if _whole_map(dx.shape, w.shape, (ph, pw)):
        dx, w = _as_pixels(dx), _as_pixels(w)
    (n, ic, h, width), (oc, _, kh, kw), (_, _, ho, wo) = dx.shape, w.shape, dy.shape
    # Rows of dx fall into sh classes: kernel row u meets those rows r only where r + ph - u is a
    # multiple of sh, and then output row (r + ph - u) / sh. So dy needs no holes spread into it.
    above, left = (kh - 1) // sh, (kw - 1) // sw
    below, right = max(0, (h - 1 + ph) // sh - ho + 1), max(0, (width - 1 + pw) // sw - wo + 1)
    padded = _padded(dy, "dy", (above, below), (left, right))
    _, _, hp, wp = padded.shape
    errors, weights = padded.reshape(-1), dense(w, "w").reshape(-1)
    for u in range(min(sh, kh)):
        for v in range(min(sw, kw)):
            r, c = (u - ph) % sh, (v - pw) % sw
            rows, columns = len(range(r, h, sh)), len(range(c, width, sw))
            if not rows or not columns:
                continue
            down, across = len(range(u, kh, sh)), len(range(v, kw, sw))
            first = (above + (r + ph - u) // sh) * wp + left + (c + pw - v) // sw
            contract(
                target,
                _offsets((n, ic * h * width), (rows, sh * width), (columns, sw), start=r * width + c),
                _offsets((ic, h * width)),
                errors,
                _offsets((n, oc * hp * wp), (rows, wp), (columns, 1), start=first),
                _offsets((oc, -hp * wp), (down, -wp), (across, -1), start=(oc - 1) * hp * wp),
                weights,
                _offsets((ic, kh * kw)),
                _offsets(
                    (oc, -ic * kh * kw), (down, sh * kw), (across, sw), start=(oc - 1) * ic * kh * kw + u * kw + v
                ),
            )


def add_gradient(dw: Floats, x: Floats, dy: Floats, *, stride: Pair, pad: Pair) -> None:
    """As `gradient`, added to dw in place; dw is C-contiguous."""
    _check(x.shape, dw.shape, dy.shape, stride, pad)
    target, (sh, sw), (ph, pw) = in_place(dw, "dw").reshape(-1), pair(stride), pair(pad)
    if _whole_map(x.shape, dw.shape, (ph, pw)):
        x, dw = _as_pixels(x), _as_pixels(dw)
    (n, oc, ho, wo), (_, ic, kh, kw) = dy.shape, dw.shape
    padded = _padded(x, "x", (ph, ph), (pw, pw))
    _, _, hp, wp = padded.shape
    taps = ic * kh * kw
    contract(
        target,
        _offsets((taps, 1)),
        _offsets((oc, taps)),
        padded.reshape(-1),
        _offsets((ic, hp * wp), (kh, wp), (kw, 1)),
        _offsets((n, ic * hp * wp), (ho, sh * wp), (wo, sw)),
        dense(dy, "dy").reshape(-1),
        _offsets((oc, ho * wo)),
        _offsets((n, oc * ho * wo), (ho * wo, 1)),
    )


def output_shape(x_shape: tuple[int, ...], w_shape: tuple[int, ...], *, stride: Pair, pad: Pair) -> Shape:
    """Return the shape (n, oc, ho, wo) of the convolution of x (n, ic, h, w) with w (oc, ic, kh, kw).

    Raise ValueError where there is none.
    """
    if len(x_shape) != 4 or len(w_shape) != 4:
        raise ValueError(f"maps (n, ic, h, w) and weights (oc, ic, kh, kw) are needed, not {x_shape} and {w_shape}")
    if x_shape[1] != w_shape[1]:
        raise ValueError(f"maps {x_shape} have {x_shape[1]} channels, but weights {w_shape} take {w_shape[1]}")
    ho, wo = output_size(x_shape[2:], w_shape[2:], stride=stride, pad=pad)
    return x_shape[0], w_shape[0], ho, wo


def _check(x: tuple[int, ...], w: tuple[int, ...], y: tuple[int, ...], stride: Pair, pad: Pair) -> None:
    expected = output_shape(x, w, stride=stride, pad=pad)
    if tuple(y) != expected:
        raise ValueError(
            f"maps {tuple(x)} and weights {tuple(w)} with stride {stride} and pad {pad} give outputs {expected}, "
            f"not {tuple(y)}"
        )


def _start(shape: tuple[int, ...], given: Floats | None, name: str) -> Floats:
    if given is None:
        return np.zeros(shape, np.float32)
    if given.shape != shape:
        raise ValueError(f"{name} has shape {given.shape}; {shape} is needed")
    return np.array(of_float32(given, name), order="C")


def _padded(maps: Floats, name: str, rows: tuple[int, int], columns: tuple[int, int]) -> Floats:
    """Return the maps in a frame of zeros, C-contiguous; the maps themselves where there is nothing to add.

    rows are those to add above and below, columns those to the left and to the right.
    """
    if rows == columns == (0, 0):
        return dense(maps, name)
    return _frame(dense(maps, name), rows, columns)


def _whole_map(x_shape: tuple[int, ...], w_shape: tuple[int, ...], pad: tuple[int, int]) -> bool:
    """Whether the kernel covers the whole map, as in a fully connected layer."""
    return x_shape[2:] == w_shape[2:] and pad == (0, 0)


def _as_pixels(array: Floats) -> Floats:
    """Turn each map value into a channel of its own; order and results of a whole-map kernel stay the same."""
    n, channels, h, w = array.shape
    return array.reshape(n, channels * h * w, 1, 1)


def _offsets(*axes: tuple[int, int], start: int = 0) -> NDArray[np.int64]:
    """Return start + the offsets of all indices of a nest of at most three loops, each (count, step), in order."""
    outer, middle, inner = ((1, 0),) * (3 - len(axes)) + axes
    return _table(start, outer, middle, inner)


@njit(cache=True, nogil=True)
def _table(start: Any, outer: Any, middle: Any, inner: Any) -> Any:
    table = np.empty((outer[0], middle[0], inner[0]), np.int64)
    for i in range(outer[0]):
        for j in range(middle[0]):
            for k in range(inner[0]):
                table[i, j, k] = start + i * outer[1] + j * middle[1] + k * inner[1]
    return table.reshape(-1)


@njit(cache=True, nogil=True)
def _frame(maps: Any, rows: Any, columns: Any) -> Any:
    n, channels, h, w = maps.shape
    padded = np.zeros((n, channels, rows[0] + h + rows[1], columns[0] + w + columns[1]), np.float32)
    for sample in range(n):
        for channel in range(channels):
            for row in range(h):
                for column in range(w):
                    padded[sample, channel, rows[0] + row, columns[0] + column] = maps[sample, channel, row, column]
    return padded
