"""Convolution of plain maps (n, channels, rows, columns) and weights (oc, ic, kh, kw), for all uses but training."""

from __future__ import annotations

import numpy as np

from ..jit import FLOAT_BYTES, Floats, of_float32
from ..memory import aligned
from ..window import Pair, output_size, pair
from .convolution import Convolution
from .geometry import Sums


def output_shape(
    x_shape: tuple[int, ...], w_shape: tuple[int, ...], *, stride: Pair, pad: Pair
) -> tuple[int, int, int, int]:
    """Return the shape (n, oc, ho, wo) of the convolution of x (n, ic, h, w) with w (oc, ic, kh, kw).

    Raise ValueError where shapes do not fit.
    """
    if len(x_shape) != 4 or len(w_shape) != 4:
        raise ValueError(f"maps (n, ic, h, w) and weights (oc, ic, kh, kw) are needed, not {x_shape} and {w_shape}")
    if x_shape[1] != w_shape[1]:
        raise ValueError(f"maps {x_shape} have {x_shape[1]} channels, but weights {w_shape} take {w_shape[1]}")
    ho, wo = output_size(x_shape[2:], w_shape[2:], stride=stride, pad=pad)
    return x_shape[0], w_shape[0], ho, wo


def forward(
    x: Floats, w: Floats, *, stride: Pair, pad: Pair, partial: Floats | None = None, sums: Sums = Sums.FP32
) -> Floats:
    """Convolve `x` (n, ic, h, w) with `w` (oc, ic, kh, kw); return y (n, oc, ho, wo), a new array.

    `partial` (n, oc, ho, wo) is the sum over the input channels before these; it and y are in the format of `sums`
    (`narrow_kernel.py`). Raise ValueError where shapes do not fit,
    TypeError where an array is not float32.
    """
    shape = output_shape(x.shape, w.shape, stride=stride, pad=pad)
    convolution = _convolution(x.shape, w.shape, stride, pad, sums)
    y = _start(shape, partial, "partial")
    convolution.forward(y, _framed_inputs(convolution, x), convolution.pack(w), fresh=partial is None)
    return _channels_first(y)


def error(
    dy: Floats,
    w: Floats,
    x_shape: tuple[int, ...],
    *,
    stride: Pair,
    pad: Pair,
    partial: Floats | None = None,
    sums: Sums = Sums.FP32,
) -> Floats:
    """Return dx, of shape `x_shape` (n, ic, h, w), for `dy` (n, oc, ho, wo) and `w` (oc, ic, kh, kw), a new array.

    `partial` (n, ic, h, w) is the sum over the output channels after these; it and dx are in the format of `sums`.
    Raise ValueError where shapes do not fit, TypeError where an array is not float32.
    """
    _check(x_shape, w.shape, dy.shape, stride, pad)
    convolution = _convolution(x_shape, w.shape, stride, pad, sums)
    dx = _start(tuple(x_shape), partial, "partial")
    framed, turned = (
        np.empty(convolution.error_frame_shape(len(dy)), np.float32),
        aligned(FLOAT_BYTES * convolution.turned_size).view(np.float32),
    )
    convolution.error_frame(_channels_last(dy, "dy"), framed)
    convolution.turn(convolution.pack(w), turned)
    convolution.error(dx, framed, turned, fresh=partial is None)
    return _channels_first(dx)


def gradient(
    x: Floats,
    dy: Floats,
    w_shape: tuple[int, ...],
    *,
    stride: Pair,
    pad: Pair,
    accumulate: Floats | None = None,
    sums: Sums = Sums.FP32,
) -> Floats:
    """Return dw, of shape `w_shape` (oc, ic, kh, kw), for `x` (n, ic, h, w) and `dy` (n, oc, ho, wo), a new array.

    `accumulate` (oc, ic, kh, kw) is the sum over the samples before these; it and dw are in the format of `sums`.
    Raise ValueError where shapes do not fit, TypeError where an array is not float32.
    """
    _check(x.shape, w_shape, dy.shape, stride, pad)
    convolution = _convolution(x.shape, w_shape, stride, pad, sums)
    if accumulate is not None and accumulate.shape != tuple(w_shape):
        raise ValueError(f"accumulate has shape {accumulate.shape}; {tuple(w_shape)} is needed")
    packed = _new(convolution.packed_size) if accumulate is None else convolution.pack(accumulate)
    convolution.gradient(packed, _framed_inputs(convolution, x), _channels_last(dy, "dy"), fresh=accumulate is None)
    return convolution.unpack(packed)


def _convolution(
    x_shape: tuple[int, ...], w_shape: tuple[int, ...], stride: Pair, pad: Pair, sums: Sums
) -> Convolution:
    (_, _, h, w), (oc, ic, kh, kw) = x_shape, w_shape
    return Convolution(ic, oc, (h, w), (kh, kw), pair(stride), pair(pad), sums)


def _check(x: tuple[int, ...], w: tuple[int, ...], y: tuple[int, ...], stride: Pair, pad: Pair) -> None:
    expected = output_shape(x, w, stride=stride, pad=pad)
    if tuple(y) != expected:
        raise ValueError(
            f"maps {tuple(x)} and weights {tuple(w)} with stride {stride} and pad {pad} give outputs {expected}, "
            f"not {tuple(y)}"
        )


def _start(shape: tuple[int, ...], given: Floats | None, name: str) -> Floats:
    """Return maps with the channels last to add to: a copy of `given`, or a new array."""
    n, channels, h, w = shape
    if given is None:
        return np.empty((n, h, w, channels), np.float32)
    if given.shape != shape:
        raise ValueError(f"{name} has shape {given.shape}; {shape} is needed")
    return np.array(_channels_last(given, name))


def _framed_inputs(convolution: Convolution, x: Floats) -> Floats:
    framed = np.empty(convolution.frame_shape(len(x)), np.float32)
    convolution.frame(_channels_last(x, "x"), framed)
    return framed


def _channels_last(maps: Floats, name: str) -> Floats:
    return np.ascontiguousarray(of_float32(maps, name).transpose(0, 2, 3, 1))


def _channels_first(maps: Floats) -> Floats:
    return np.ascontiguousarray(maps.transpose(0, 3, 1, 2))


def _new(size: int) -> Floats:
    return aligned(FLOAT_BYTES * size).view(np.float32)
