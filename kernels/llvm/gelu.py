"""GELU and its slope, over maps: one sequence of float32 operations, with the same bits in every
form.

GELU is x times a gate (Hendrycks and Gimpel, 2016): the normal distribution function, or its
approximation by tanh. With a = |x|, the first is

    e = exponential(-0.5 * (a * a));  t = 1 / fma(a, 0.3, 1)
    q = C7;  q = fma(q, t, C6);  ..  q = fma(q, t, C0)
    tail = e * (q * t);  gate = x < 0 ? tail : 1 - tail
    slope = fma(x, e * DENSITY, gate)

and the second, the sigmoid of twice what tanh would be taken of, with a = |x|, at most LIMIT,

    e = exponential(-(a * fma(a * a, CUBE, LINE)));  share = 1 / (1 + e);  tail = e * share
    gate = x < 0 ? tail : share
    slope = fma(x * (tail * share), fma(a * a, 3 * CUBE, LINE), gate)

A NaN stays a NaN. Errors of gates are below 2e-7.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.extending import intrinsic

from ..jit import FLOAT_BYTES, compiled
from .emit import numbers_only
from .lanes import WIDTH, Lanes, Units, exponential, for_units, fused

DENSITY = 1 / math.sqrt(2 * math.pi)
LINE = 2 * math.sqrt(2 / math.pi)
CUBE = 0.044715 * LINE
LIMIT = 16.0  # where e is 0 by far
_COEFFICIENTS = (
    *(0.11961150914430618, 0.12101851403713226, 0.09830405563116074, 0.13376377522945404),
    *(-0.06335476785898209, 0.21672339737415314, -0.16315913200378418, 0.03709262236952782),
)


def _exact(x: Lanes) -> tuple[Lanes, Lanes]:
    """Emit gate and slope of the normal distribution."""
    zero, one = x.all(0.0), x.all(1.0)
    a = x.where("<", zero, -x, x)
    e = exponential(x.all(-0.5) * (a * a))
    t = one / fused(a, x.all(0.3), one)
    q = x.all(_COEFFICIENTS[-1])
    for coefficient in _COEFFICIENTS[-2::-1]:
        q = fused(q, t, x.all(coefficient))
    tail = e * (q * t)
    gate = x.where("<", zero, tail, one - tail)
    return gate, fused(x, e * x.all(DENSITY), gate)


def _by_tanh(x: Lanes) -> tuple[Lanes, Lanes]:
    """Emit gate and slope of the approximation."""
    zero, one, limit, line = x.all(0.0), x.all(1.0), x.all(LIMIT), x.all(LINE)
    size = x.where("<", zero, -x, x)
    a = limit.where("<", size, limit, size)
    square = a * a
    e = exponential(-(a * fused(square, x.all(CUBE), line)))
    share = one / (one + e)
    tail = e * share
    gate = x.where("<", zero, tail, share)
    return gate, fused(x * (tail * share), fused(square, x.all(3 * CUBE), line), gate)


def _line(kind: Callable[[Lanes], tuple[Lanes, Lanes]], result: Callable[..., Lanes]) -> Any:
    """Return an intrinsic (count, x, y) that sets `count` <= WIDTH numbers y to result(x, y, gate,
    slope).
    """

    @intrinsic
    def line(context: Any, count: Any, x: Any, y: Any) -> Any:
        def generate(builder: ir.IRBuilder, count: ir.Value, x: ir.Value, y: ir.Value) -> None:
            def write(units: Units) -> None:
                values = units.load(x)
                units.store(result(values, units.load(y), *kind(values)), y)

            for_units(builder, count, write)

        return numbers_only(3, generate)

    return line


def _value(x: Lanes, _y: Lanes, gate: Lanes, _slope: Lanes) -> Lanes:
    return x * gate


def _error(_x: Lanes, dy: Lanes, _gate: Lanes, slope: Lanes) -> Lanes:
    return dy * slope


_exact_values, _tanh_values = _line(_exact, _value), _line(_by_tanh, _value)
_exact_errors, _tanh_errors = _line(_exact, _error), _line(_by_tanh, _error)


@compiled
def forward(x: Any, x_extent: Any, y: Any, y_extent: Any, by_tanh: Any) -> None:
    """Set y to GELU of x; where `by_tanh` is not 0, to its approximation."""
    _over_runs(x, x_extent, y, y_extent, by_tanh != 0, False)


@compiled
def error(x: Any, x_extent: Any, dy: Any, dy_extent: Any, by_tanh: Any) -> None:
    """Multiply dy by the slope at x."""
    _over_runs(x, x_extent, dy, dy_extent, by_tanh != 0, True)


@compiled
def _over_runs(x: Any, x_extent: Any, y: Any, y_extent: Any, by_tanh: Any, is_error: Any) -> None:
    pixels, channels, x_pitch, y_pitch = _runs(x_extent, y_extent)
    for pixel in range(pixels):
        for c in range(0, channels, WIDTH):
            come = x.ctypes.data + FLOAT_BYTES * (pixel * x_pitch + c)
            to = y.ctypes.data + FLOAT_BYTES * (pixel * y_pitch + c)
            count = min(WIDTH, channels - c)
            if is_error and by_tanh:
                _tanh_errors(count, come, to)
            elif is_error:
                _exact_errors(count, come, to)
            elif by_tanh:
                _tanh_values(count, come, to)
            else:
                _exact_values(count, come, to)


@compiled
def _runs(x_extent: Any, y_extent: Any) -> Any:
    """Return how many runs of floats maps have, how long each is, and both steps between them."""
    (n, rows, columns, channels, x_pitch), y_pitch = x_extent, y_extent[4]
    pixels = n * rows * columns
    if x_pitch == channels and y_pitch == channels:
        return 1, pixels * channels, 0, 0
    return pixels, channels, x_pitch, y_pitch
