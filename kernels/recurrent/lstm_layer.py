"""A whole LSTM layer in one call for FP, and in one for EB and PG, from plain weights.

All that FP leaves for EB and PG, and what both need meanwhile, lies in one array, `memory`, at places that the sizes
give: (samples, steps, inputs, units, outputs of the projection or 0). R is packed into the same memory for both.

Other arguments are addresses; nothing is checked here.
"""

from __future__ import annotations

from typing import Any

from ..jit import FLOAT_BYTES, compiled
from ..llvm import LINE_BYTES, clear, copy
from .common import keep_error
from .gradient import gradient, sum_rows
from .lanes import WIDTH
from .lstm_cell import GATES
from .lstm_steps import backward_steps, forward_steps
from .packing import pack_backward, pack_forward, packed_size, panel_lanes, rows_for_errors, transpose
from .panels import MOST_SAMPLES, ROW
from .rows import errors_of_rows, product_of_rows

_LINE = LINE_BYTES // FLOAT_BYTES
_ONE_GATE = 1, 1
_VECTOR = FLOAT_BYTES * WIDTH  # bytes: rows that begin elsewhere are read at half the speed, so they are packed
_AS_IT_IS = 1 << 18  # floats of R that EB of few samples reads as they are: they stay in the second-level cache


@compiled
def _after(begin: Any, count: Any) -> Any:
    """Return the place of the next array: that of a cache line."""
    return begin + (count + _LINE - 1) // _LINE * _LINE


@compiled
def _pitch(rows: Any) -> Any:
    """Return the pitch of transposed rows, which is not a power of two."""
    return rows // 16 * 16 + 16 + 16 * (rows // 16 % 2)


@compiled
def _places(sizes: Any) -> Any:
    """Return the places in `memory`, as numbers of floats: of weights, of the tape, of errors, spare ones, its end."""
    samples, steps, _, units, outputs = sizes
    rows, channels, width = samples * steps, GATES * units, outputs if outputs else units
    r, panel = 0, panel_lanes(samples)
    p = _after(r, max(packed_size(channels, width, panel), packed_size(width, channels, panel)))
    b_w = _after(p, max(packed_size(outputs, units, ROW), packed_size(units, outputs, ROW)))
    b_r = _after(b_w, channels)
    gates = _after(b_r, channels)
    t = _after(gates, rows * channels)
    c_before = _after(t, rows * units)
    h_before = _after(c_before, rows * units)
    cells = _after(h_before, rows * width)
    delta = _after(cells, rows * units if outputs else 0)
    of_outputs = _after(delta, rows * channels)
    turned = _after(of_outputs, rows * outputs)
    sums = _after(turned, max(channels, outputs) * _pitch(rows))
    some_units = _after(sums, samples * channels)
    some_outputs = _after(some_units, samples * units)
    carry = _after(some_outputs, samples * width)
    end = _after(carry, samples * width)
    tape = gates, t, c_before, h_before, cells
    return (r, b_w, b_r, p), tape, (delta, of_outputs, turned), (sums, some_units, some_outputs, carry), end


@compiled
def memory_size(sizes: Any) -> Any:
    """Return the floats of `memory`."""
    return _places(sizes)[4]


@compiled
def forward(sizes: Any, ragged: Any, rows: Any, x: Any, weights: Any, state: Any, y: Any, memory: Any) -> None:
    """Run FP over all steps.

    - rows: as in `lstm_steps.py`; `ragged` is not 0 where some are -1
    - weights: (W, R, b_W, b_R, P), gate by gate
    - state: (h, c), which are changed
    """
    samples, steps, inputs, units, outputs = sizes
    w, r, b_w, b_r, p = weights
    h, c = state
    begin = memory.ctypes.data
    (packed, own_b_w, own_b_r, packed_p), kept, _, (sums, some_units, some_outputs, _), _ = _places(sizes)
    tape = (
        begin + FLOAT_BYTES * kept[0],
        begin + FLOAT_BYTES * kept[1],
        begin + FLOAT_BYTES * kept[2],
        begin + FLOAT_BYTES * kept[3],
        begin + FLOAT_BYTES * kept[4],
        y,
    )
    own = (
        begin + FLOAT_BYTES * packed,
        begin + FLOAT_BYTES * own_b_w,
        begin + FLOAT_BYTES * own_b_r,
        begin + FLOAT_BYTES * packed_p,
    )
    spare = begin + FLOAT_BYTES * sums, begin + FLOAT_BYTES * some_units, begin + FLOAT_BYTES * some_outputs
    order, width, panel = (1, units), outputs if outputs else units, panel_lanes(samples)
    product_of_rows(tape[0], x, samples * steps, w, order, GATES, units, inputs)
    if ragged:
        memory[kept[1] : _places(sizes)[2][0]] = 0
    transpose(b_w, GATES, units, own[1], GATES)
    transpose(b_r, GATES, units, own[2], GATES)
    pack_forward(r, order, GATES, units, width, panel, own[0])
    if outputs:
        pack_forward(p, _ONE_GATE, 1, outputs, units, ROW, own[3])
    forward_steps((0, steps), (units, width, outputs, panel), rows, own, (h, h, width, c), tape, spare)


@compiled
def backward(
    sizes: Any, ragged: Any, rows: Any, x: Any, weights: Any, dy: Any, state: Any, found: Any, memory: Any
) -> None:
    """Run EB and PG over all steps, from what `forward` has left.

    - weights: (W, R, P)
    - state: (errors of the last h and c), which become those of the first
    - found: gradients (dx, dW, dR, db_W, db_R, dP), which are overwritten
    """
    samples, steps, inputs, units, outputs = sizes
    w, r, p = weights
    dh, dc = state
    dx, dw, dr, db_w, db_r, dp = found
    count, channels, width = samples * steps, GATES * units, outputs if outputs else units
    begin, order, panel = memory.ctypes.data, (1, units), panel_lanes(samples)
    (packed, total, _, packed_p), kept, errors, spares, _ = _places(sizes)
    own, own_p = begin + FLOAT_BYTES * packed, begin + FLOAT_BYTES * packed_p
    gates, t = begin + FLOAT_BYTES * kept[0], begin + FLOAT_BYTES * kept[1]
    c_before, h_before = begin + FLOAT_BYTES * kept[2], begin + FLOAT_BYTES * kept[3]
    delta, of_outputs = begin + FLOAT_BYTES * errors[0], begin + FLOAT_BYTES * errors[1]
    turned, pitch = begin + FLOAT_BYTES * errors[2], _pitch(count)
    copied, of_cells = begin + FLOAT_BYTES * spares[0], begin + FLOAT_BYTES * spares[1]
    of_h, carry = begin + FLOAT_BYTES * spares[2], begin + FLOAT_BYTES * spares[3]

    if ragged:
        memory[errors[0] : errors[2]] = 0
    r_place, r_rows = rows_for_errors(r, order, GATES, units, width)
    if samples > MOST_SAMPLES or r % _VECTOR or width % WIDTH or channels * width > _AS_IT_IS:
        pack_backward(r, order, GATES, units, width, panel, own)
        r_place = own
    else:
        panel = 0
    if outputs:
        pack_backward(p, _ONE_GATE, 1, outputs, units, ROW, own_p)
    clear(carry, samples * width)
    backward_steps(
        (0, steps),
        (units, width, outputs, panel),
        rows,
        (r_place, r_rows, own_p),
        (dh, width, dh, carry, dc),
        (dy, gates, t, c_before),
        (delta, of_outputs),
        (copied, of_h, of_cells),
        1,
    )
    keep_error(samples * width, carry, dh)
    errors_of_rows(dx, delta, count, w, order, GATES, units, inputs)
    transpose(delta, count, channels, turned, pitch)
    gradient(dw, order, GATES, (0, GATES), units, inputs, turned, pitch, x, count, 1)
    gradient(dr, order, GATES, (0, GATES), units, width, turned, pitch, h_before, count, 1)
    sums = memory[total : total + channels]
    sums[:] = 0
    sum_rows(sums, memory[errors[0] : errors[0] + count * channels])
    transpose(begin + FLOAT_BYTES * total, units, GATES, db_w, units)
    copy(db_r, db_w, channels)
    if outputs:
        transpose(of_outputs, count, outputs, turned, pitch)
        cells = begin + FLOAT_BYTES * kept[4]
        gradient(dp, _ONE_GATE, 1, (0, 1), outputs, units, turned, pitch, cells, count, 1)
