"""The steps of an LSTM: products with R and the element-wise lines, step by step in one call.

`rows` [steps, samples] holds the row, sample * T + t, that each sample has at each step, or -1 where its sequence has
ended: its state then stays, and so do its errors.

Arguments are addresses, and counts of floats; nothing is checked here.
"""

from __future__ import annotations

from typing import Any

from ..jit import FLOAT_BYTES, compiled
from ..llvm import clear, copy
from .common import keep_error, total_error
from .lanes import WIDTH
from .lstm_cell import GATES, backward_cell, forward_cell
from .product import product


@compiled
def forward_steps(steps: Any, sizes: Any, rows: Any, weights: Any, state: Any, tape: Any, spare: Any) -> None:
    """Run the steps (first, last + 1).

    - sizes: (own units, width of h, outputs of the projection or 0)
    - weights: (packed R, b_W, b_R, packed P)
    - state: (h, new h of the own units, or of the projection, its pitch, c); the new h may be the own part of h
    - tape: (gates, from the sums over inputs; tanh of c; c before; h before; what P multiplies; y)
    - spare: (sums, what P multiplies, outputs of P) for a step
    """
    units, width, outputs = sizes
    r, bias_w, bias_r, p = weights
    h, new, new_step, c = state
    gates, t, c_before, h_before, cells, y = tape
    sums, multiplied, projected = spare
    samples, channels = rows.shape[1], GATES * units
    wide = outputs if outputs else units
    for step in range(steps[0], steps[1]):
        for n in range(samples):
            row, to = rows[step, n], sums + FLOAT_BYTES * n * channels
            if row >= 0:
                copy(to, gates + FLOAT_BYTES * row * channels, channels)
                copy(h_before + FLOAT_BYTES * row * width, h + FLOAT_BYTES * n * width, width)
            else:
                clear(to, channels)
        product(sums, channels, h, width, 1, samples, r, channels, width, 0, step)
        for n in range(samples):
            row = rows[step, n]
            if row < 0:
                continue
            for first in range(0, units, WIDTH):
                own, kept = FLOAT_BYTES * (n * units + first), FLOAT_BYTES * (row * units + first)
                if outputs:
                    out, result = cells + kept, multiplied + own
                else:
                    out, result = y + kept, new + FLOAT_BYTES * (n * new_step + first)
                forward_cell(
                    min(WIDTH, units - first),
                    sums + GATES * own,
                    bias_w + FLOAT_BYTES * GATES * first,
                    bias_r + FLOAT_BYTES * GATES * first,
                    c + own,
                    gates + GATES * kept,
                    t + kept,
                    c_before + kept,
                    out,
                    result,
                )
        if outputs:
            product(projected, outputs, multiplied, units, 1, samples, p, outputs, units, 1, step)
            for n in range(samples):
                row, come = rows[step, n], projected + FLOAT_BYTES * n * outputs
                if row >= 0:
                    copy(new + FLOAT_BYTES * n * new_step, come, outputs)
                    copy(y + FLOAT_BYTES * row * wide, come, outputs)


@compiled
def backward_steps(
    steps: Any, sizes: Any, rows: Any, weights: Any, state: Any, tape: Any, found: Any, spare: Any, fresh: Any
) -> None:
    """Run the steps (first, last + 1) from the last to the first.

    - sizes: (own units, width of h, outputs of the projection or 0)
    - weights: (packed R, packed P), for errors
    - state: (errors of h: the own part, its pitch, where to write all; carry; dc)
    - tape: (dy, gates, tanh of c, c before)
    - found: (errors of the sums, errors of the outputs of P)
    - spare: (errors of the sums, of the outputs, of what P multiplies) for a step
    - fresh: whether errors of h start from +0, or from what is there
    """
    units, width, outputs = sizes
    r, p = weights
    dh, dh_step, dh_before, carry, dc = state
    dy, gates, t, c_before = tape
    delta, of_outputs = found
    copied, errors, of_cells = spare
    samples, channels = rows.shape[1], GATES * units
    wide = outputs if outputs else units
    for step in range(steps[1] - 1, steps[0] - 1, -1):
        for n in range(samples):
            row, mine = rows[step, n], FLOAT_BYTES * n * wide
            come = dh + FLOAT_BYTES * n * dh_step
            if row >= 0:
                total_error(wide, dy + FLOAT_BYTES * row * wide, come, carry + mine, errors + mine)
                if outputs:
                    copy(of_outputs + FLOAT_BYTES * row * wide, errors + mine, wide)
            else:
                keep_error(wide, come, carry + mine)
                clear(errors + mine, wide)
        e = errors
        if outputs:
            last = FLOAT_BYTES * (outputs - 1)
            product(of_cells, units, errors + last, outputs, -1, samples, p, units, outputs, 1, step)
            e = of_cells
        for n in range(samples):
            row = rows[step, n]
            if row < 0:
                clear(copied + FLOAT_BYTES * n * channels, channels)
                continue
            for first in range(0, units, WIDTH):
                own, kept = FLOAT_BYTES * (n * units + first), FLOAT_BYTES * (row * units + first)
                backward_cell(
                    min(WIDTH, units - first),
                    e + own,
                    gates + GATES * kept,
                    t + kept,
                    c_before + kept,
                    dc + own,
                    delta + GATES * kept,
                    copied + GATES * own,
                )
        last = FLOAT_BYTES * (channels - 1)
        product(dh_before, width, copied + last, channels, -1, samples, r, width, channels, fresh, step)
