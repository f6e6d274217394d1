"""The loops of a depthwise convolution: lanes are channels, and each sum is a chain of fused
multiply-adds.

Maps are channels last. Forward, error and gradient add products of two pixels, or of a pixel and
the weights of a tap, lane by lane, in the order that `convolution.py` gives; places outside of a
map are left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import compiled
from ..llvm import fma


@compiled
def _add(out: Any, to: Any, a: Any, a_at: Any, b: Any, b_at: Any, count: Any, lanes: Any) -> None:
    """Add a[a_at[k] + i] * b[b_at[k] + i] to out[to + i] for k < count in order, i < lanes.

    Four at a time: sums are loaded and stored a quarter as often. Offsets are unsigned, so that the
    loops over lanes become vector code.
    """
    first, whole = np.uint64(to), count // 4 * 4
    for k in range(0, whole, 4):
        a0, a1, a2, a3 = (
            np.uint64(a_at[k]),
            np.uint64(a_at[k + 1]),
            np.uint64(a_at[k + 2]),
            np.uint64(a_at[k + 3]),
        )
        b0, b1, b2, b3 = (
            np.uint64(b_at[k]),
            np.uint64(b_at[k + 1]),
            np.uint64(b_at[k + 2]),
            np.uint64(b_at[k + 3]),
        )
        for i in range(np.uint64(lanes)):
            total = fma(a[a0 + i], b[b0 + i], out[first + i])
            total = fma(a[a1 + i], b[b1 + i], total)
            total = fma(a[a2 + i], b[b2 + i], total)
            out[first + i] = fma(a[a3 + i], b[b3 + i], total)
    for k in range(whole, count):
        a0, b0 = np.uint64(a_at[k]), np.uint64(b_at[k])
        for i in range(np.uint64(lanes)):
            out[first + i] = fma(a[a0 + i], b[b0 + i], out[first + i])


@compiled
def forward(y: Any, extent: Any, x: Any, size: Any, w: Any, window: Any) -> None:
    """Add the outputs to y; x is (n, rows, columns, channels), w (taps, channels), both dense."""
    (n, ho, wo, channels, pitch), (h, wx), (kernel, stride, pad, dilation) = extent, size, window
    x_at, w_at = (
        np.empty(kernel[0] * kernel[1], np.int64),
        np.empty(kernel[0] * kernel[1], np.int64),
    )
    for sample in range(n):
        for row in range(ho):
            for column in range(wo):
                top, left, count = row * stride[0] - pad[0], column * stride[1] - pad[1], 0
                for u in range(kernel[0]):
                    r = top + u * dilation[0]
                    for v in range(kernel[1] if 0 <= r < h else 0):
                        c = left + v * dilation[1]
                        if not 0 <= c < wx:
                            continue
                        x_at[count] = ((sample * h + r) * wx + c) * channels
                        w_at[count] = (u * kernel[1] + v) * channels
                        count += 1
                _add(
                    y,
                    ((sample * ho + row) * wo + column) * pitch,
                    x,
                    x_at,
                    w,
                    w_at,
                    count,
                    channels,
                )


@compiled
def error(dx: Any, extent: Any, dy: Any, output: Any, w: Any, window: Any) -> None:
    """Add the input errors to dx; dy is (n, rows, columns, channels), w (taps, channels), both
    dense.
    """
    (n, h, wx, channels, pitch), (ho, wo), (kernel, stride, pad, dilation) = extent, output, window
    dy_at, w_at = (
        np.empty(kernel[0] * kernel[1], np.int64),
        np.empty(kernel[0] * kernel[1], np.int64),
    )
    for sample in range(n):
        for row in range(h):
            for column in range(wx):
                count = 0
                for u in range(kernel[0]):
                    down = row + pad[0] - u * dilation[0]
                    r = down // stride[0]
                    for v in range(kernel[1] if 0 <= r < ho and r * stride[0] == down else 0):
                        across = column + pad[1] - v * dilation[1]
                        c = across // stride[1]
                        if 0 <= c < wo and c * stride[1] == across:
                            dy_at[count] = ((sample * ho + r) * wo + c) * channels
                            w_at[count] = (u * kernel[1] + v) * channels
                            count += 1
                _add(
                    dx,
                    ((sample * h + row) * wx + column) * pitch,
                    dy,
                    dy_at,
                    w,
                    w_at,
                    count,
                    channels,
                )


@compiled
def gradient(dw: Any, x: Any, size: Any, dy: Any, extent: Any, window: Any) -> None:
    """Add the gradients to dw (taps, channels); x and dy are (n, rows, columns, channels),
    dense.
    """
    (n, ho, wo, channels, _), (h, wx), (kernel, stride, pad, dilation) = extent, size, window
    x_at, dy_at = np.empty(wo, np.int64), np.empty(wo, np.int64)
    for sample in range(n):
        for row in range(ho):
            for u in range(kernel[0]):
                r = row * stride[0] - pad[0] + u * dilation[0]
                for v in range(kernel[1] if 0 <= r < h else 0):
                    count = 0
                    for column in range(wo):
                        c = column * stride[1] - pad[1] + v * dilation[1]
                        if 0 <= c < wx:
                            x_at[count] = ((sample * h + r) * wx + c) * channels
                            dy_at[count] = ((sample * ho + row) * wo + column) * channels
                            count += 1
                    _add(dw, (u * kernel[1] + v) * channels, x, x_at, dy, dy_at, count, channels)
