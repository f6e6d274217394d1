"""The steps of an LSTM in one call: products with R, and the element-wise lines, a vector of units
at a time.

Forward, with a_i .. a_o the chains over inputs and hidden units, and gates in the order i, f, g, o:

    i = sigmoid((a_i + b_W) + b_R);  f, o alike;  g = tanh((a_g + b_W) + b_R)
    c = fma(f, c_before, i * g)
    t = tanh(c)
    h = o * t

Backward, with e the error of h, and dc the error of c from the step after:

    d = fma(o * e, fma(-t, t, 1), dc)
    delta_i = (i * (1 - i)) * (g * d)
    delta_f = (f * (1 - f)) * (c_before * d)
    delta_g = fma(-g, g, 1) * (i * d)
    delta_o = (o * (1 - o)) * (t * e)
    dc = f * d

`rows` [steps, samples] holds the row, sample * T + t, that each sample has at each step, or -1
where its sequence has ended: its state then stays, and so do its errors.

Operands may be rounded (`operands.py`): h, and what P multiplies, where they are made; delta and
errors of h before they are multiplied.

Arguments are addresses, and counts of floats; nothing is checked here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.extending import intrinsic

from ..attention.operands import WHOLE
from ..jit import FLOAT_BYTES, compiled
from ..llvm import WIDTH, Units, clear, copy, for_units, fused, of_blocks, sigmoid, tanh
from .arrays import LstmBackward, LstmForward, Product
from .rounding import round_gates, round_states
from .step_parts import keep_error, product, total_error

GATES = 4


@intrinsic
def forward_units(context: Any, count: Any, at: Any) -> Any:
    """Take `count` units from the sums to h and y; keep gates, t and the c before, and change c."""

    def generate(builder: ir.IRBuilder, count: ir.Value, at: LstmForward) -> None:
        def write(units: Units) -> None:
            i, f, g, o = units.load_gates(at.sums, GATES, at.bias_w, at.bias_r)
            i, f, g, o = sigmoid(i), sigmoid(f), tanh(g), sigmoid(o)
            before = units.load(at.c)
            after = fused(f, before, i * g)
            bent = tanh(after)
            out = o * bent
            units.store_gates([i, f, g, o], at.gates)
            for values, place in (
                (bent, at.t),
                (before, at.c_before),
                (after, at.c),
                (out, at.y),
                (out, at.h),
            ):
                units.store(values, place)

        for_units(builder, count, write)

    return of_blocks(generate, count, at)


@intrinsic
def backward_units(context: Any, count: Any, at: Any) -> Any:
    """Take `count` units from the error of h to the errors of the sums, written twice; change
    dc.
    """

    def generate(builder: ir.IRBuilder, count: ir.Value, at: LstmBackward) -> None:
        def write(units: Units) -> None:
            i, f, g, o = units.load_gates(at.gates, GATES)
            e, bent, before, later = (
                units.load(place) for place in (at.error, at.t, at.c_before, at.dc)
            )
            one = e.all(1.0)
            d = fused(o * e, fused(-bent, bent, one), later)
            errors = [
                (i * (one - i)) * (g * d),
                (f * (one - f)) * (before * d),
                fused(-g, g, one) * (i * d),
                (o * (one - o)) * (bent * e),
            ]
            units.store_gates(errors, at.delta)
            units.store_gates(errors, at.copied)
            units.store(f * d, at.dc)

        for_units(builder, count, write)

    return of_blocks(generate, count, at)


@compiled
def forward_steps(
    steps: Any, sizes: Any, rows: Any, weights: Any, state: Any, tape: Any, spare: Any, rounds: Any
) -> None:
    """Run the steps (first, last + 1).

    - sizes: (own units, width of h, outputs of the projection or 0)
    - weights: (packed R, b_W, b_R, packed P)
    - state: (h, new h of the own units, or of the projection, its pitch, c); the new h may be the
      own part of h
    - tape: (gates, from the sums over inputs; tanh of c; c before; h before; what P multiplies; y)
    - spare: (sums, what P multiplies, outputs of P) for a step
    - rounds: how h, and what P multiplies, are rounded
    """
    units, width, outputs = sizes
    r, bias_w, bias_r, p = weights
    h, new, new_step, c = state
    gates, t, c_before, h_before, cells, y = tape
    sums, multiplied, projected = spare
    of_h, of_inner = rounds
    samples, channels = rows.shape[1], GATES * units
    wide = outputs if outputs else units
    room = np.empty(max(units, wide), np.uint32)
    for step in range(steps[0], steps[1]):
        for n in range(samples):
            row, to = rows[step, n], sums + FLOAT_BYTES * n * channels
            if row >= 0:
                copy(to, gates + FLOAT_BYTES * row * channels, channels)
                copy(h_before + FLOAT_BYTES * row * width, h + FLOAT_BYTES * n * width, width)
            else:
                clear(to, channels)
        # Every other step reads the panels of R backwards: those that the step before read last are
        # still near.
        product(Product(sums, channels, h, width, 1, samples, r, channels, width), 0, step)
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
                at = LstmForward(
                    sums=sums + GATES * own,
                    bias_w=bias_w + FLOAT_BYTES * GATES * first,
                    bias_r=bias_r + FLOAT_BYTES * GATES * first,
                    c=c + own,
                    gates=gates + GATES * kept,
                    t=t + kept,
                    c_before=c_before + kept,
                    y=out,
                    h=result,
                )
                forward_units(min(WIDTH, units - first), at)
            own_row = row - n * rows.shape[0]
            if outputs and of_inner.way != WHOLE:
                made = multiplied + FLOAT_BYTES * n * units
                round_states(of_inner, made, units, n, own_row, room)
                copy(cells + FLOAT_BYTES * row * units, made, units)
            elif not outputs and of_h.way != WHOLE:
                made = new + FLOAT_BYTES * n * new_step
                round_states(of_h, made, units, n, own_row, room)
                copy(y + FLOAT_BYTES * row * units, made, units)
        if outputs:
            product(
                Product(projected, outputs, multiplied, units, 1, samples, p, outputs, units),
                1,
                step,
            )
            for n in range(samples):
                row, come = rows[step, n], projected + FLOAT_BYTES * n * outputs
                if row >= 0:
                    if of_h.way != WHOLE:
                        round_states(of_h, come, outputs, n, row - n * rows.shape[0], room)
                    copy(new + FLOAT_BYTES * n * new_step, come, outputs)
                    copy(y + FLOAT_BYTES * row * wide, come, outputs)


@compiled
def backward_steps(
    steps: Any,
    sizes: Any,
    rows: Any,
    weights: Any,
    state: Any,
    tape: Any,
    results: Any,
    spare: Any,
    fresh: Any,
    rounds: Any,
) -> None:
    """Run the steps (first, last + 1) from the last to the first.

    - sizes: (own units, width of h, outputs of the projection or 0)
    - weights: (packed R, packed P), for errors
    - state: (errors of h: the own part, its pitch, where to write all; carry; dc)
    - tape: (dy, gates, tanh of c, c before)
    - found: (errors of the sums, errors of the outputs of P)
    - spare: (errors of the sums, of the outputs, of what P multiplies) for a step
    - fresh: whether errors of h start from +0, or from what is there
    - rounds: how errors of the sums, and of the outputs of P, are rounded
    """
    units, width, outputs = sizes
    r, p = weights
    dh, dh_step, dh_before, carry, dc = state
    dy, gates, t, c_before = tape
    delta, of_outputs = results
    copied, errors, of_cells = spare
    of_sums, of_projected = rounds
    samples, channels = rows.shape[1], GATES * units
    wide = outputs if outputs else units
    room = np.empty(max(channels, wide), np.uint32)
    for step in range(steps[1] - 1, steps[0] - 1, -1):
        for n in range(samples):
            row, mine = rows[step, n], FLOAT_BYTES * n * wide
            come = dh + FLOAT_BYTES * n * dh_step
            if row >= 0:
                total_error(wide, dy + FLOAT_BYTES * row * wide, come, carry + mine, errors + mine)
                if outputs:
                    if of_projected.way != WHOLE:
                        own_row = row - n * rows.shape[0]
                        round_states(of_projected, errors + mine, wide, n, own_row, room)
                    copy(of_outputs + FLOAT_BYTES * row * wide, errors + mine, wide)
            else:
                keep_error(wide, come, carry + mine)
                clear(errors + mine, wide)
        e = errors
        if outputs:
            last = FLOAT_BYTES * (outputs - 1)
            product(
                Product(of_cells, units, errors + last, outputs, -1, samples, p, units, outputs),
                1,
                step,
            )
            e = of_cells
        for n in range(samples):
            row = rows[step, n]
            if row < 0:
                clear(copied + FLOAT_BYTES * n * channels, channels)
                continue
            for first in range(0, units, WIDTH):
                own, kept = FLOAT_BYTES * (n * units + first), FLOAT_BYTES * (row * units + first)
                at = LstmBackward(
                    error=e + own,
                    gates=gates + GATES * kept,
                    t=t + kept,
                    c_before=c_before + kept,
                    dc=dc + own,
                    delta=delta + GATES * kept,
                    copied=copied + GATES * own,
                )
                backward_units(min(WIDTH, units - first), at)
            if of_sums.way != WHOLE:
                made = copied + FLOAT_BYTES * n * channels
                round_gates(of_sums, made, units, GATES, n, row - n * rows.shape[0], room)
                copy(delta + FLOAT_BYTES * row * channels, made, channels)
        last = FLOAT_BYTES * (channels - 1)
        product(
            Product(dh_before, width, copied + last, channels, -1, samples, r, width, channels),
            fresh,
            step,
        )
