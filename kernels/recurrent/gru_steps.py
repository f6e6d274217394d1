"""The steps of a GRU: products with R and the element-wise lines, step by step in one call.

`rows` is as in `lstm_steps.py`. In the form that resets before the product, R multiplies r * h_before for n, after r is
known: a second product, which takes all units of the layer.

Arguments are addresses, and counts of floats; nothing is checked here.
"""

from __future__ import annotations

from typing import Any

from ..jit import FLOAT_BYTES, compiled
from ..llvm import clear, copy
from .common import keep_error, total_error
from .gru_cell import (
    GATES,
    backward_linear,
    backward_new,
    backward_reset,
    forward_linear,
    forward_new,
    forward_reset,
    split_sums,
)
from .lanes import WIDTH
from .product import product


@compiled
def forward_steps(steps: Any, sizes: Any, rows: Any, weights: Any, state: Any, tape: Any, spare: Any) -> None:
    """Run the steps (first, last + 1), linear before reset.

    - sizes: (own units, width of h, the first own unit)
    - weights: (packed R, b_W, b_R)
    - state: (h, new h of the own units, its pitch); the new h may be the own part of h
    - tape: (gates, from the sums over inputs; m; h before; y)
    - spare: the sums of a step
    """
    units, width, begin = sizes
    r, bias_w, bias_r = weights
    h, new, new_step = state
    gates, m, h_before, y = tape
    samples, channels = rows.shape[1], GATES * units
    for step in range(steps[0], steps[1]):
        for n in range(samples):
            row, to = rows[step, n], spare + FLOAT_BYTES * n * channels
            if row < 0:
                clear(to, channels)
                continue
            for first in range(0, units, WIDTH):
                at = FLOAT_BYTES * GATES * first
                split_sums(min(WIDTH, units - first), gates + FLOAT_BYTES * row * channels + at, to + at)
            copy(h_before + FLOAT_BYTES * row * width, h + FLOAT_BYTES * n * width, width)
        product(spare, channels, h, width, 1, samples, r, channels, width, 0, step)
        for n in range(samples):
            row = rows[step, n]
            if row < 0:
                continue
            for first in range(0, units, WIDTH):
                own, kept = FLOAT_BYTES * (n * units + first), FLOAT_BYTES * (row * units + first)
                forward_linear(
                    min(WIDTH, units - first),
                    spare + GATES * own,
                    bias_w + FLOAT_BYTES * GATES * first,
                    bias_r + FLOAT_BYTES * GATES * first,
                    h_before + FLOAT_BYTES * (row * width + begin + first),
                    gates + GATES * kept,
                    m + kept,
                    y + kept,
                    new + FLOAT_BYTES * (n * new_step + first),
                )


@compiled
def backward_steps(
    steps: Any, sizes: Any, rows: Any, r: Any, state: Any, tape: Any, found: Any, spare: Any, fresh: Any
) -> None:
    """Run the steps (first, last + 1) from the last to the first, linear before reset.

    - sizes: (own units, width of h, the first own unit)
    - r: packed R, for errors
    - state: (errors of h: the own part, its pitch, where to write all; carry)
    - tape: (dy, gates, m, h before)
    - found: errors of the sums: (those over inputs, those over hidden units)
    - spare: (errors of the sums, of the outputs) for a step
    - fresh: whether errors of h start from +0, or from what is there
    """
    units, width, begin = sizes
    dh, dh_step, dh_before, carry = state
    dy, gates, m, h_before = tape
    delta, delta_r = found
    copied, errors = spare
    samples, channels = rows.shape[1], GATES * units
    for step in range(steps[1] - 1, steps[0] - 1, -1):
        for n in range(samples):
            row, mine = rows[step, n], FLOAT_BYTES * n * units
            come = dh + FLOAT_BYTES * n * dh_step
            if row < 0:
                keep_error(units, come, carry + mine)
                clear(copied + FLOAT_BYTES * n * channels, channels)
                continue
            total_error(units, dy + FLOAT_BYTES * row * units, come, carry + mine, errors + mine)
            for first in range(0, units, WIDTH):
                own, kept = FLOAT_BYTES * (n * units + first), FLOAT_BYTES * (row * units + first)
                backward_linear(
                    min(WIDTH, units - first),
                    errors + own,
                    gates + GATES * kept,
                    m + kept,
                    h_before + FLOAT_BYTES * (row * width + begin + first),
                    carry + own,
                    delta + GATES * kept,
                    delta_r + GATES * kept,
                    copied + GATES * own,
                )
        last = FLOAT_BYTES * (channels - 1)
        product(dh_before, width, copied + last, channels, -1, samples, r, width, channels, fresh, step)


@compiled
def forward_reset_steps(steps: Any, units: Any, rows: Any, weights: Any, h: Any, tape: Any, spare: Any) -> None:
    """Run the steps (first, last + 1) of a whole layer that resets before the product.

    - weights: (packed R, b_W, b_R)
    - tape: (gates, from the sums over inputs; r * h before; h before; y)
    - spare: (sums, r * h before) for a step
    """
    r, bias_w, bias_r = weights
    gates, reset, h_before, y = tape
    sums, q = spare
    samples, channels = rows.shape[1], GATES * units
    for step in range(steps[0], steps[1]):
        for n in range(samples):
            row, to = rows[step, n], sums + FLOAT_BYTES * n * channels
            if row >= 0:
                copy(to, gates + FLOAT_BYTES * row * channels, channels)
                copy(h_before + FLOAT_BYTES * row * units, h + FLOAT_BYTES * n * units, units)
            else:
                clear(to, channels)
                clear(q + FLOAT_BYTES * n * units, units)
        product(sums, channels, h, units, 1, samples, r, channels, units, 0, step)
        for n in range(samples):
            row, to = rows[step, n], sums + FLOAT_BYTES * n * channels
            if row < 0:
                continue
            for first in range(0, units, WIDTH):
                own, kept = FLOAT_BYTES * (n * units + first), FLOAT_BYTES * (row * units + first)
                at = FLOAT_BYTES * GATES * first
                forward_reset(
                    min(WIDTH, units - first), to + at, bias_w + at, bias_r + at, h + own, gates + GATES * kept, q + own
                )
            copy(reset + FLOAT_BYTES * row * units, q + FLOAT_BYTES * n * units, units)
            copy(to, gates + FLOAT_BYTES * row * channels, channels)
        product(sums, channels, q, units, 1, samples, r, channels, units, 0, step)
        for n in range(samples):
            row, to = rows[step, n], sums + FLOAT_BYTES * n * channels
            if row < 0:
                continue
            for first in range(0, units, WIDTH):
                own, kept = FLOAT_BYTES * (n * units + first), FLOAT_BYTES * (row * units + first)
                at = FLOAT_BYTES * GATES * first
                forward_new(
                    min(WIDTH, units - first),
                    to + at,
                    bias_w + at,
                    bias_r + at,
                    h + own,
                    gates + GATES * kept,
                    y + kept,
                    h + own,
                )


@compiled
def backward_reset_steps(
    steps: Any, units: Any, rows: Any, r: Any, state: Any, tape: Any, delta: Any, spare: Any
) -> None:
    """Run the steps (first, last + 1) of a whole layer that resets before the product, from the last to the first.

    - r: packed R, for errors
    - state: (errors of h, carry)
    - tape: (dy, gates, h before)
    - delta: errors of the sums
    - spare: (errors of the sums, of the outputs, of r * h before) for a step
    """
    dh, carry = state
    dy, gates, h_before = tape
    copied, errors, s = spare
    samples, channels = rows.shape[1], GATES * units
    last = FLOAT_BYTES * (channels - 1)
    for step in range(steps[1] - 1, steps[0] - 1, -1):
        for n in range(samples):
            row, mine = rows[step, n], FLOAT_BYTES * n * units
            if row < 0:
                keep_error(units, dh + mine, carry + mine)
                clear(copied + GATES * mine, channels)
                continue
            total_error(units, dy + FLOAT_BYTES * row * units, dh + mine, carry + mine, errors + mine)
            for first in range(0, units, WIDTH):
                own, kept = FLOAT_BYTES * (n * units + first), FLOAT_BYTES * (row * units + first)
                backward_new(
                    min(WIDTH, units - first),
                    errors + own,
                    gates + GATES * kept,
                    h_before + kept,
                    delta + GATES * kept,
                    copied + GATES * own,
                )
        product(s, units, copied + last, channels, -1, samples, r, units, channels, 1, step)
        for n in range(samples):
            row = rows[step, n]
            if row < 0:
                continue
            for first in range(0, units, WIDTH):
                own, kept = FLOAT_BYTES * (n * units + first), FLOAT_BYTES * (row * units + first)
                backward_reset(
                    min(WIDTH, units - first),
                    s + own,
                    errors + own,
                    gates + GATES * kept,
                    h_before + kept,
                    carry + own,
                    delta + GATES * kept,
                    copied + GATES * own,
                )
        product(dh, units, copied + last, channels, -1, samples, r, units, channels, 1, step)
