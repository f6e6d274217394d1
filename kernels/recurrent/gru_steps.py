"""The steps of a GRU: products with R and the element-wise lines, step by step in one call; gates
are r, z, n.

Forward, with a_r, a_z the chains over inputs and hidden units:

    r = sigmoid((a_r + b_W) + b_R);  z alike
    linear before reset:  w = the chain over inputs, m = (the chain over hidden units from +0) + b_R
                          n = tanh(fma(r, m, w + b_W))
    otherwise:            q = r * h_before;  n = tanh((a_n + b_W) + b_R), a_n over inputs, then over q
    h = fma(z, h_before - n, n)

Backward, with e the error of h:

    delta_n = (e * (1 - z)) * fma(-n, n, 1)
    delta_z = (e * (h_before - n)) * (z * (1 - z))
    linear before reset:  delta_r = (delta_n * m) * (r * (1 - r));  R takes delta_n * r for n
                          carry = e * z
    otherwise:            s = the chain over delta_n R_n;  delta_r = (s * h_before) * (r * (1 - r))
                          carry = fma(s, r, e * z)

`carry` is the part of the error of h_before that does not go through R. In the form that resets
before the product, R multiplies r * h_before for n, after r is known: a second product, which takes
all units of the layer.

`rows` is as in `lstm_steps.py`. Operands may be rounded (`operands.py`): h and q where they are
made, errors of the sums before they are multiplied; s is of delta_n rounded.

Arguments are addresses, and counts of floats; nothing is checked here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.extending import intrinsic

from ..attention.operands import WHOLE
from ..jit import FLOAT_BYTES, compiled
from ..llvm import WIDTH, Lanes, Units, clear, copy, for_units, fused, of_blocks, sigmoid, tanh
from .arrays import GruBackward, GruForward, Product
from .rounding import round_some, round_split, round_states
from .step_parts import keep_error, product, total_error

GATES = 3


def _for_units(count: Any, at: Any, write: Callable[[Units, Any], None]) -> Any:
    """Return the intrinsic that does what `write` emits for `count` units."""

    def generate(builder: ir.IRBuilder, count: ir.Value, at: Any) -> None:
        for_units(builder, count, lambda units: write(units, at))

    return of_blocks(generate, count, at)


@intrinsic
def split_sums(context: Any, count: Any, places: Any) -> Any:
    """Copy the sums over the inputs of `count` units from the first place to the second, with +0
    for n.

    For n another chain starts.
    """

    def write(units: Units, places: Any) -> None:
        a_r, a_z, a_n = units.load_gates(places[0], GATES)
        units.store_gates([a_r, a_z, a_n.all(0.0)], places[1])

    return _for_units(count, places, write)


def _resets_and_updates(units: Units, at: GruForward) -> list[Lanes]:
    return [sigmoid(gate) for gate in units.load_gates(at.sums, GATES, at.bias_w, at.bias_r)[:2]]


def _finish(units: Units, at: GruForward, reset: Lanes, update: Lanes, new: Lanes) -> None:
    # (1 - z) n + z h, as z (h - n) + n.
    out = fused(update, units.load(at.h_before) - new, new)
    units.store_gates([reset, update, new], at.gates)
    units.store(out, at.y)
    units.store(out, at.h)


@intrinsic
def forward_linear(context: Any, count: Any, at: Any) -> Any:
    """Take `count` units to h and y, linear before reset; `gates` holds the sums over inputs, then
    r, z and n.
    """

    def write(units: Units, at: GruForward) -> None:
        reset, update = _resets_and_updates(units, at)
        recurrent = units.load_gates(at.sums, GATES, at.bias_r)[2]
        new = tanh(fused(reset, recurrent, units.load_gates(at.gates, GATES, at.bias_w)[2]))
        units.store(recurrent, at.inner)
        _finish(units, at, reset, update, new)

    return _for_units(count, at, write)


@intrinsic
def forward_reset(context: Any, count: Any, at: Any) -> Any:
    """Set q = r * h_before of `count` units, and keep r and z in `gates`, with the sum over inputs
    of n.
    """

    def write(units: Units, at: GruForward) -> None:
        reset, update = _resets_and_updates(units, at)
        units.store(reset * units.load(at.h_before), at.inner)
        units.store_gates([reset, update, units.load_gates(at.gates, GATES)[2]], at.gates)

    return _for_units(count, at, write)


@intrinsic
def forward_new(context: Any, count: Any, at: Any) -> Any:
    """Take `count` units to h and y after `forward_reset`; `sums` holds the chains over inputs and
    q for n.
    """

    def write(units: Units, at: GruForward) -> None:
        reset, update, _ = units.load_gates(at.gates, GATES)
        new = tanh(units.load_gates(at.sums, GATES, at.bias_w, at.bias_r)[2])
        _finish(units, at, reset, update, new)

    return _for_units(count, at, write)


def _new_and_update_errors(
    units: Units, at: GruBackward, update: Lanes, new: Lanes
) -> tuple[Lanes, Lanes]:
    e = units.load(at.error)
    one = e.all(1.0)
    # The last factor is 1 - n^2, the slope of tanh.
    of_new = (e * (one - update)) * fused(-new, new, one)
    return of_new, (e * (units.load(at.h_before) - new)) * (update * (one - update))


@intrinsic
def backward_linear(context: Any, count: Any, at: Any) -> Any:
    """Take `count` units from the error of h to the errors of the sums: W's, and R's, written
    twice.
    """

    def write(units: Units, at: GruBackward) -> None:
        reset, update, new = units.load_gates(at.gates, GATES)
        of_new, of_update = _new_and_update_errors(units, at, update, new)
        of_reset = (of_new * units.load(at.inner)) * (reset * (reset.all(1.0) - reset))
        kept = units.load(at.error) * update
        units.store_gates([of_reset, of_update, of_new], at.delta)
        for place in (at.delta_r, at.copied):
            units.store_gates([of_reset, of_update, of_new * reset], place)
        units.store(kept, at.carry)

    return _for_units(count, at, write)


@intrinsic
def backward_new(context: Any, count: Any, at: Any) -> Any:
    """Set the errors of z and n of `count` units; of the copy, that of n alone, and +0 for the
    others.
    """

    def write(units: Units, at: GruBackward) -> None:
        _, update, new = units.load_gates(at.gates, GATES)
        of_new, of_update = _new_and_update_errors(units, at, update, new)
        zero = of_new.all(0.0)
        units.store_gates([zero, of_update, of_new], at.delta)
        units.store_gates([zero, zero, of_new], at.copied)

    return _for_units(count, at, write)


@intrinsic
def backward_reset(context: Any, count: Any, at: Any) -> Any:
    """Set the error of r of `count` units after `backward_new`, and carry; of the copy, those of r
    and z alone.
    """

    def write(units: Units, at: GruBackward) -> None:
        reset, update, _ = units.load_gates(at.gates, GATES)
        _, of_update, of_new = units.load_gates(at.delta, GATES)
        of_product, e, before = (units.load(place) for place in (at.inner, at.error, at.h_before))
        of_reset = (of_product * before) * (reset * (e.all(1.0) - reset))
        units.store_gates([of_reset, of_update, of_new], at.delta)
        units.store_gates([of_reset, of_update, e.all(0.0)], at.copied)
        units.store(fused(of_product, reset, e * update), at.carry)

    return _for_units(count, at, write)


@compiled
def forward_steps(
    steps: Any, sizes: Any, rows: Any, weights: Any, state: Any, tape: Any, spare: Any, rounds: Any
) -> None:
    """Run the steps (first, last + 1), linear before reset.

    - sizes: (own units, width of h, the first own unit)
    - weights: (packed R, b_W, b_R)
    - state: (h, new h of the own units, its pitch); the new h may be the own part of h
    - tape: (gates, from the sums over inputs; m; h before; y)
    - spare: the sums of a step
    - rounds: how h is rounded, and what there is not here
    """
    units, width, begin = sizes
    r, bias_w, bias_r = weights
    h, new, new_step = state
    gates, m, h_before, y = tape
    of_h, _ = rounds
    samples, channels = rows.shape[1], GATES * units
    room = np.empty(units, np.uint32)
    for step in range(steps[0], steps[1]):
        for n in range(samples):
            row, to = rows[step, n], spare + FLOAT_BYTES * n * channels
            if row < 0:
                clear(to, channels)
                continue
            for first in range(0, units, WIDTH):
                own = FLOAT_BYTES * GATES * first
                split_sums(
                    min(WIDTH, units - first),
                    (gates + FLOAT_BYTES * row * channels + own, to + own),
                )
            copy(h_before + FLOAT_BYTES * row * width, h + FLOAT_BYTES * n * width, width)
        # Every other step reads the panels of R backwards: those that the step before read last are
        # still near.
        product(Product(spare, channels, h, width, 1, samples, r, channels, width), 0, step)
        for n in range(samples):
            row = rows[step, n]
            if row < 0:
                continue
            for first in range(0, units, WIDTH):
                own, kept = FLOAT_BYTES * (n * units + first), FLOAT_BYTES * (row * units + first)
                at = GruForward(
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
            if of_h.way != WHOLE:
                made = new + FLOAT_BYTES * n * new_step
                round_states(of_h, made, units, n, row - n * rows.shape[0], room)
                copy(y + FLOAT_BYTES * row * units, made, units)


@compiled
def backward_steps(
    steps: Any,
    sizes: Any,
    rows: Any,
    r: Any,
    state: Any,
    tape: Any,
    results: Any,
    spare: Any,
    fresh: Any,
    rounds: Any,
) -> None:
    """Run the steps (first, last + 1) from the last to the first, linear before reset.

    - sizes: (own units, width of h, the first own unit)
    - r: packed R, for errors
    - state: (errors of h: the own part, its pitch, where to write all; carry)
    - tape: (dy, gates, m, h before)
    - found: errors of the sums: (those over inputs, those over hidden units)
    - spare: (errors of the sums, of the outputs) for a step
    - fresh: whether errors of h start from +0, or from what is there
    - rounds: how errors of the sums are rounded, and what there is not here
    """
    units, width, begin = sizes
    dh, dh_step, dh_before, carry = state
    dy, gates, m, h_before = tape
    delta, delta_r = results
    copied, errors = spare
    of_sums, _ = rounds
    samples, channels = rows.shape[1], GATES * units
    room = np.empty(2 * channels, np.uint32)
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
                at = GruBackward(
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
            if of_sums.way != WHOLE:
                of_w, of_r = (
                    delta + FLOAT_BYTES * row * channels,
                    copied + FLOAT_BYTES * n * channels,
                )
                t = row - n * rows.shape[0]
                round_split(of_sums, of_w, of_r, units, GATES, n, t, room)
                copy(delta_r + FLOAT_BYTES * row * channels, of_r, channels)
        last = FLOAT_BYTES * (channels - 1)
        product(
            Product(dh_before, width, copied + last, channels, -1, samples, r, width, channels),
            fresh,
            step,
        )


@compiled
def _forward_block(
    n: Any, row: Any, first: Any, units: Any, weights: Any, h: Any, tape: Any, spare: Any
) -> Any:
    """Return where units of a sample lie, from number `first` on; arguments are those of
    `forward_reset_steps`.
    """
    own, kept, at = (
        FLOAT_BYTES * (n * units + first),
        FLOAT_BYTES * (row * units + first),
        FLOAT_BYTES * GATES * first,
    )
    return GruForward(
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
def forward_reset_steps(
    steps: Any, units: Any, rows: Any, weights: Any, h: Any, tape: Any, spare: Any, rounds: Any
) -> None:
    """Run the steps (first, last + 1) of a whole layer that resets before the product.

    - weights: (packed R, b_W, b_R)
    - tape: (gates, from the sums over inputs; r * h before; h before; y)
    - spare: (sums, r * h before) for a step
    - rounds: how h, and r * h before, are rounded
    """
    r, (gates, reset, h_before, _) = weights[0], tape
    sums, q = spare
    of_h, of_inner = rounds
    samples, channels = rows.shape[1], GATES * units
    room = np.empty(units, np.uint32)
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
            if of_inner.way != WHOLE:
                made = q + FLOAT_BYTES * n * units
                round_states(of_inner, made, units, n, row - n * rows.shape[0], room)
            copy(reset + FLOAT_BYTES * row * units, q + FLOAT_BYTES * n * units, units)
            copy(to, gates + FLOAT_BYTES * row * channels, channels)
        product(Product(sums, channels, q, units, 1, samples, r, channels, units), 0, step)
        for n in range(samples):
            row = rows[step, n]
            if row >= 0:
                for first in range(0, units, WIDTH):
                    at = _forward_block(n, row, first, units, weights, h, tape, spare)
                    forward_new(min(WIDTH, units - first), at)
                if of_h.way != WHOLE:
                    made = h + FLOAT_BYTES * n * units
                    round_states(of_h, made, units, n, row - n * rows.shape[0], room)
                    copy(tape[3] + FLOAT_BYTES * row * units, made, units)


@compiled
def _backward_block(
    n: Any, row: Any, first: Any, units: Any, carry: Any, tape: Any, delta: Any, spare: Any
) -> Any:
    """Return where units of a sample lie, from number `first` on; arguments are those of
    `backward_reset_steps`.
    """
    own, kept = FLOAT_BYTES * (n * units + first), FLOAT_BYTES * (row * units + first)
    return GruBackward(
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
    steps: Any,
    units: Any,
    rows: Any,
    r: Any,
    state: Any,
    tape: Any,
    delta: Any,
    spare: Any,
    rounds: Any,
) -> None:
    """Run the steps (first, last + 1) of a whole layer that resets before the product, from the
    last to the first.

    - r: packed R, for errors
    - state: (errors of h, carry)
    - tape: (dy, gates, h before)
    - delta: errors of the sums
    - spare: (errors of the sums, of the outputs, of r * h before) for a step
    - rounds: how errors of the sums are rounded, and what there is not here
    """
    dh, carry = state
    dy, (copied, errors, s) = tape[0], spare
    of_sums, _ = rounds
    samples, channels = rows.shape[1], GATES * units
    room = np.empty(2 * channels, np.uint32)
    last = FLOAT_BYTES * (channels - 1)
    for step in range(steps[1] - 1, steps[0] - 1, -1):
        for n in range(samples):
            row, mine = rows[step, n], FLOAT_BYTES * n * units
            if row < 0:
                keep_error(units, dh + mine, carry + mine)
                clear(copied + GATES * mine, channels)
                continue
            total_error(
                units, dy + FLOAT_BYTES * row * units, dh + mine, carry + mine, errors + mine
            )
            for first in range(0, units, WIDTH):
                backward_new(
                    min(WIDTH, units - first),
                    _backward_block(n, row, first, units, carry, tape, delta, spare),
                )
            if of_sums.way != WHOLE:
                of_row, t = delta + FLOAT_BYTES * row * channels, row - n * rows.shape[0]
                places = copied + GATES * mine, of_row
                round_some(of_sums, places, units, GATES, (GATES - 1, 1), n, t, room)
        product(
            Product(s, units, copied + last, channels, -1, samples, r, units, channels), 1, step
        )
        for n in range(samples):
            row = rows[step, n]
            if row < 0:
                continue
            for first in range(0, units, WIDTH):
                backward_reset(
                    min(WIDTH, units - first),
                    _backward_block(n, row, first, units, carry, tape, delta, spare),
                )
            if of_sums.way != WHOLE:
                of_row, t = delta + FLOAT_BYTES * row * channels, row - n * rows.shape[0]
                places = copied + FLOAT_BYTES * n * channels, of_row
                round_some(of_sums, places, units, GATES, (0, GATES - 1), n, t, room)
        product(
            Product(dh, units, copied + last, channels, -1, samples, r, units, channels), 1, step
        )
