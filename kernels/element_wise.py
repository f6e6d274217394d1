"""Element-wise kernels over maps: the loops over pixels and channels, around a function of the numbers at one place."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np

from .jit import Kernel
from .jit.compiled import ROOM

_of: Any = None  # the function, in each kernel's own copy of a loop


def over_maps(function: Callable[[Any], Any]) -> Kernel:
    """Return a kernel (y, extent) that sets each y to function(y)."""
    return _around(function, _over)


def between_maps(function: Callable[..., Any]) -> Kernel:
    """Return a kernel (x, extent, y, extent, *parameters) that sets each y to function(x, y, *parameters)."""
    return _around(function, _between)


def _around(function: Callable[..., Any], loop: Callable[..., None]) -> Kernel:
    module, name = function.__module__.removeprefix(f"{ROOM}."), function.__name__
    scope = {**globals(), "_of": Kernel(module, name, function)}
    return Kernel(module, name, types.FunctionType(loop.__code__, scope, name))


def _over(y: Any, extent: Any) -> None:
    n, rows, columns, channels, pitch = extent
    pixels = n * rows * columns
    if pitch == channels:  # a long loop is fast
        pixels, channels = 1, pixels * channels
    for pixel in range(pixels):
        at = np.uint64(pixel * pitch)
        for c in range(np.uint64(channels)):
            y[at + c] = _of(y[at + c])


def _between(x: Any, x_extent: Any, y: Any, y_extent: Any, *parameters: Any) -> None:
    (n, rows, columns, channels, x_pitch), y_pitch = x_extent, y_extent[4]
    pixels = n * rows * columns
    if x_pitch == channels and y_pitch == channels:  # as above
        pixels, channels = 1, pixels * channels
    for pixel in range(pixels):
        at, to = np.uint64(pixel * x_pitch), np.uint64(pixel * y_pitch)
        for c in range(np.uint64(channels)):
            y[to + c] = _of(x[at + c], y[to + c], *parameters)
