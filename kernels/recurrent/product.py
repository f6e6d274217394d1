"""Products of rows and packed weights, gradients of weights, and the packing: what the steps of a layer are made of.

Weights w have a row of `depth` floats for each output channel = gates * unit + gate. The row of unit u and gate g is
number u * unit_step + g * gate_step: (gates, 1) where rows are channels, (1, units) where each gate has its own block
of rows, as in PyTorch. They are packed in panels of up to PANEL vectors of lanes, each with all its k side by side:

- forward: lanes are output channels, k the inputs, ascending
- backward: lanes are inputs, k the output channels, descending

Arguments are addresses, and counts of floats; nothing is checked here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..conv.microkernel import even_share, padded_lanes
from ..conv.transpose import SIDE, transpose_block
from ..form import FORM
from ..jit import FLOAT_BYTES, compiled
from ..llvm import LINE_BYTES, clear, copy
from .tile import MOST_SAMPLES, PANEL, VECTORS, run_tile

WIDTH = FORM.width
_VECTORS = np.array(VECTORS)
_NARROW = VECTORS[-1]  # vectors of a tile of MOST_SAMPLES samples
_STEPS = 192  # of k at a time, where several tiles of samples read the same panel
_ROW_STEPS = 384  # of k at a time, in gradients
_CHUNK = 256  # floats of some rows, which are packed from the first-level cache


@compiled
def _panel_vectors(lanes: Any) -> Any:
    """Return the number of vectors of the next panel, where `lanes` lanes are left."""
    return even_share((lanes + WIDTH - 1) // WIDTH, PANEL)


@compiled
def product(
    c: Any,
    c_step: Any,
    a: Any,
    a_step: Any,
    a_k: Any,
    samples: Any,
    b: Any,
    lanes: Any,
    depth: Any,
    fresh: Any,
) -> None:
    """Add a[s * a_step + k * a_k] * b[k][l] over k to c[s * c_step + l], with b in panels; where `fresh`, onto +0."""
    part = depth if samples <= MOST_SAMPLES else _STEPS
    narrow = _VECTORS[min(samples, MOST_SAMPLES) - 1]
    panel, lane = b, 0
    while lane < lanes:
        vectors = _panel_vectors(lanes - lane)
        row = vectors * WIDTH
        k = 0
        while k < depth:
            steps, begin = even_share(depth - k, part), 1 if fresh and k == 0 else 0
            first = 0
            while first < vectors:
                some = even_share(vectors - first, narrow)
                at = lane + first * WIDTH
                count, s = min(some * WIDTH, lanes - at), 0
                while s < samples:
                    size = even_share(samples - s, MOST_SAMPLES)
                    run_tile(
                        size,
                        some,
                        c + FLOAT_BYTES * (s * c_step + at),
                        c_step,
                        a + FLOAT_BYTES * (s * a_step + k * a_k),
                        a_step,
                        a_k,
                        panel + FLOAT_BYTES * (k * row + first * WIDTH),
                        row,
                        steps,
                        count,
                        begin,
                    )
                    s += size
                first += some
            k += steps
        panel += FLOAT_BYTES * depth * row
        lane += row


@compiled
def pack_forward(w: Any, order: Any, gates: Any, units: Any, depth: Any, out: Any) -> None:
    """Pack rows of weights for the products with inputs; `order` is (unit_step, gate_step)."""
    unit_step, gate_step = order
    space = np.empty(SIDE * _CHUNK + LINE_BYTES // FLOAT_BYTES, np.float32)
    rows = (space.ctypes.data + LINE_BYTES - 1) // LINE_BYTES * LINE_BYTES
    lanes, lane, panel = gates * units, 0, out
    while lane < lanes:
        row = _panel_vectors(lanes - lane) * WIDTH
        width = min(row, lanes - lane)
        if width < row:
            clear(panel, row * depth)
        for k in range(0, depth, _CHUNK):
            chunk = min(_CHUNK, depth - k)
            for first in range(0, width, SIDE):
                some = min(SIDE, width - first)
                for number in range(some):
                    channel = lane + first + number
                    source = channel // gates * unit_step + channel % gates * gate_step
                    copy(rows + FLOAT_BYTES * number * _CHUNK, w + FLOAT_BYTES * (source * depth + k), chunk)
                for j in range(0, chunk, SIDE):
                    to = panel + FLOAT_BYTES * ((k + j) * row + first)
                    transpose_block(rows + FLOAT_BYTES * j, _CHUNK, some, min(SIDE, chunk - j), to, row)
        panel += FLOAT_BYTES * depth * row
        lane += row
    space[0] = 0  # keeps the memory until here


@compiled
def pack_backward(w: Any, order: Any, gates: Any, units: Any, depth: Any, out: Any) -> None:
    """Pack rows of weights for the products with errors; `order` is (unit_step, gate_step)."""
    unit_step, gate_step = order
    lane, panel = 0, out
    while lane < depth:
        row = _panel_vectors(depth - lane) * WIDTH
        width = min(row, depth - lane)
        for channel in range(gates * units - 1, -1, -1):
            source = channel // gates * unit_step + channel % gates * gate_step
            copy(panel, w + FLOAT_BYTES * (source * depth + lane), width)
            if width < row:
                clear(panel + FLOAT_BYTES * width, row - width)
            panel += FLOAT_BYTES * row
        lane += row


@compiled
def transpose(source: Any, rows: Any, columns: Any, out: Any, out_step: Any) -> None:
    """Set out[j * out_step + i] = source[i * columns + j] for i < rows and j < columns."""
    for i in range(0, rows, SIDE):
        for j in range(0, columns, SIDE):
            come, to = source + FLOAT_BYTES * (i * columns + j), out + FLOAT_BYTES * (j * out_step + i)
            transpose_block(come, columns, min(SIDE, rows - i), min(SIDE, columns - j), to, out_step)


@compiled
def gradient(
    dw: Any,
    order: Any,
    gates: Any,
    some_gates: Any,
    units: Any,
    depth: Any,
    errors: Any,
    errors_step: Any,
    x: Any,
    count: Any,
    fresh: Any,
) -> None:
    """Add errors[channel * errors_step + k] * x[k * depth + i] over k < count to the gradients of rows of weights.

    `some_gates` is (first, last + 1): only the rows of these gates. Where `fresh`, sums start from +0.
    """
    unit_step, gate_step = order
    space = np.empty(min(_ROW_STEPS, count) * _NARROW * WIDTH + LINE_BYTES // FLOAT_BYTES, np.float32)
    panel = (space.ctypes.data + LINE_BYTES - 1) // LINE_BYTES * LINE_BYTES
    lane = 0
    while lane < depth:
        vectors = even_share((depth - lane + WIDTH - 1) // WIDTH, _NARROW)
        row = vectors * WIDTH
        width = min(row, depth - lane)
        for k in range(0, count, _ROW_STEPS):
            steps, begin = min(_ROW_STEPS, count - k), 1 if fresh and k == 0 else 0
            for step in range(steps):
                place = panel + FLOAT_BYTES * step * row
                copy(place, x + FLOAT_BYTES * ((k + step) * depth + lane), width)
                if width < row:
                    clear(place + FLOAT_BYTES * width, row - width)
            for gate in range(some_gates[0], some_gates[1]):
                unit = 0
                while unit < units:
                    size = even_share(units - unit, MOST_SAMPLES)
                    target = (unit * unit_step + gate * gate_step) * depth + lane
                    run_tile(
                        size,
                        vectors,
                        dw + FLOAT_BYTES * target,
                        unit_step * depth,
                        errors + FLOAT_BYTES * ((unit * gates + gate) * errors_step + k),
                        gates * errors_step,
                        1,
                        panel,
                        row,
                        steps,
                        width,
                        begin,
                    )
                    unit += size
        lane += row
    space[0] = 0  # keeps the memory until here


@compiled
def sum_rows(total: Any, rows: Any) -> None:
    """Add rows[k] to total, one by one."""
    for k in range(rows.shape[0]):
        for lane in range(total.size):
            total[lane] += rows[k, lane]


@compiled
def packed_size(lanes: Any, depth: Any) -> Any:
    """Return the floats of packed weights."""
    return padded_lanes(lanes) * depth
