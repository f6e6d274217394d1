"""The steps of a GRU: products with R and the element-wise lines, step by step in one call.

`rows` is as in `lstm_steps.py`. In the form that resets before the product, R multiplies r * h_before for n, after r is
known: a second product, which takes all units of the layer.

Arguments are addresses, and counts of floats; nothing is checked here.
"""

from __future__ import annotations

from typing import Any

from ..jit import FLOAT_BYTES, compiled
from ..llvm import WIDTH, clear, copy
from .activation import keep_error, total_error
from .arrays import Product
from .gru_cell import (
    GATES,
    Backward,
    Forward,
    backward_linear,
    backward_new,
    backward_reset,
    forward_linear,
    forward_new,
    forward_reset,
    split_sums,
)
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
                own = FLOAT_BYTES * GATES * first
                split_sums(min(WIDTH, units - first), (gates + FLOAT_BYTES * row * channels + own, to + own))
            copy(h_before + FLOAT_BYTES * row * width, h + FLOAT_BYTES * n * width, width)
        product(Product(spare, channels, h, width, 1, samples, r, channels, width), 0, step)
        for n in range(samples):
            row = rows[step, n]
            if row < 0:
                continue
            for first in range(0, units, WIDTH):
                own, kept = FLOAT_BYTES * (n * units + first), FLOAT_BYTES * (row * units + first)
                at = Forward(
                    sums=spare + GATES * own,
                    bias_w=bias_w + FLOAT_BYTES * GATES * first,
                    bias_r=bias_r + FLOAT_BYTES * GATES * first,
                    h_before=h_before + FLOAT_BYTES * (row * width + begin + first),
                    gates=gates + GATES * kept,
                    inner=m + kept,
                    y=y + kept,
                    h=new + FLOAT_BYTES * (n * new_step + first),
                )
                forward_linear(min(WIDTH, units - first), at)


@compiled
def backward_steps(
    steps: Any, sizes: Any, rows: Any, r: Any, state: Any, tape: Any, results: Any, spare: Any, fresh: Any
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
    delta, delta_r = results
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
                at = Backward(
                    error=errors + own,
                    gates=gates + GATES * kept,
                    inner=m + kept,
                    h_before=h_before + FLOAT_BYTES * (row * width + begin + first),
                    carry=carry + own,
                    delta=delta + GATES * kept,
                    delta_r=delta_r + GATES * kept,
                    copied=copied + GATES * own,
                )
                backward_linear(min(WIDTH, units - first), at)
        last = FLOAT_BYTES * (channels - 1)
        product(Product(dh_before, width, copied + last, channels, -1, samples, r, width, channels), fresh, step)


@compiled
def _forward_block(n: Any, row: Any, first: Any, units: Any, weights: Any, h: Any, tape: Any, spare: Any) -> Any:
    """Return where units of a sample lie, from number `first` on; arguments are those of `forward_reset_steps`."""
    own, kept, at = FLOAT_BYTES * (n * units + first), FLOAT_BYTES * (row * units + first), FLOAT_BYTES * GATES * first
    return Forward(
        sums=spare[0] + GATES * own,
        bias_w=weights[1] + at,
        bias_r=weights[2] + at,
        h_before=h + own,
        gates=tape[0] + GATES * kept,
        inner=spare[1] + own,
        y=tape[3] + kept,
        h=h + own,
    )


@compiled
def forward_reset_steps(steps: Any, units: Any, rows: Any, weights: Any, h: Any, tape: Any, spare: Any) -> None:
    """Run the steps (first, last + 1) of a whole layer that resets before the product.

    - weights: (packed R, b_W, b_R)
    - tape: (gates, from the sums over inputs; r * h before; h before; y)
    - spare: (sums, r * h before) for a step
    """
    r, (gates, reset, h_before, _) = weights[0], tape
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
        product(Product(sums, channels, h, units, 1, samples, r, channels, units), 0, step)
        for n in range(samples):
            row, to = rows[step, n], sums + FLOAT_BYTES * n * channels
            if row < 0:
                continue
            for first in range(0, units, WIDTH):
                at = _forward_block(n, row, first, units, weights, h, tape, spare)
                forward_reset(min(WIDTH, units - first), at)
            copy(reset + FLOAT_BYTES * row * units, q + FLOAT_BYTES * n * units, units)
            copy(to, gates + FLOAT_BYTES * row * channels, channels)
        product(Product(sums, channels, q, units, 1, samples, r, channels, units), 0, step)
        for n in range(samples):
            row = rows[step, n]
            if row >= 0:
                for first in range(0, units, WIDTH):
                    at = _forward_block(n, row, first, units, weights, h, tape, spare)
                    forward_new(min(WIDTH, units - first), at)


@compiled
def _backward_block(n: Any, row: Any, first: Any, units: Any, carry: Any, tape: Any, delta: Any, spare: Any) -> Any:
    """Return where units of a sample lie, from number `first` on; arguments are those of `backward_reset_steps`."""
    own, kept = FLOAT_BYTES * (n * units + first), FLOAT_BYTES * (row * units + first)
    return Backward(
        error=spare[1] + own,
        gates=tape[1] + GATES * kept,
        inner=spare[2] + own,
        h_before=tape[2] + kept,
        carry=carry + own,
        delta=delta + GATES * kept,
        delta_r=delta + GATES * kept,
        copied=spare[0] + GATES * own,
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
    dy, (copied, errors, s) = tape[0], spare
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
                backward_new(
                    min(WIDTH, units - first), _backward_block(n, row, first, units, carry, tape, delta, spare)
                )
        product(Product(s, units, copied + last, channels, -1, samples, r, units, channels), 1, step)
        for n in range(samples):
            row = rows[step, n]
            if row < 0:
                continue
            for first in range(0, units, WIDTH):
                backward_reset(
                    min(WIDTH, units - first), _backward_block(n, row, first, units, carry, tape, delta, spare)
                )
        product(Product(dh, units, copied + last, channels, -1, samples, r, units, channels), 1, step)
