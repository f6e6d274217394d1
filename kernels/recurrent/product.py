"""Products of rows and packed weights, gradients of weights, and the packing: what the steps of a layer are made of.

Weights w have a row of `depth` floats for each output channel = gates * unit + gate. The row of unit u and gate g is
number u * unit_step + g * gate_step: (gates, 1) where rows are channels, (1, units) where each gate has its own block
of rows, as in PyTorch. They are packed in panels of ROW lanes, each with all its k side by side, and spare lanes 0:

- forward: lanes are output channels, k the inputs, ascending
- backward: lanes are inputs, k the output channels, descending

Arguments are addresses, and counts of floats; nothing is checked here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..conv.microkernel import even_share
from ..conv.transpose import SIDE, transpose_block
from ..form import FORM
from ..jit import FLOAT_BYTES, compiled
from ..llvm import LINE_BYTES, clear, copy
from .tile import MOST_SAMPLES, ROW, VECTORS, run_tile

WIDTH = FORM.width
_LANES = np.array(VECTORS) * WIDTH  # of a tile of one sample, two, and so on
_STEPS = 192  # of k at a time, where several tiles of samples read the same panel
_ROW_STEPS = 384  # of k at a time, in gradients
_LINE = LINE_BYTES // FLOAT_BYTES


@compiled
def _on_line(place: Any) -> Any:
    return (place + LINE_BYTES - 1) // LINE_BYTES * LINE_BYTES


@compiled
def packed_size(lanes: Any, depth: Any) -> Any:
    """Return the floats of packed weights."""
    return (lanes + ROW - 1) // ROW * ROW * depth


@compiled
def _run(
    c: Any,
    c_step: Any,
    a: Any,
    a_step: Any,
    a_k: Any,
    samples: Any,
    b: Any,
    steps: Any,
    lanes: Any,
    fresh: Any,
) -> None:
    """Run all samples in tiles, over up to ROW lanes, by `steps` rows of a panel."""
    most = _LANES[min(samples, MOST_SAMPLES) - 1]
    for lane in range(0, lanes, most):
        some, s = min(most, lanes - lane), 0
        vectors, b_l = (some + WIDTH - 1) // WIDTH, b + FLOAT_BYTES * lane
        while s < samples:
            size = even_share(samples - s, MOST_SAMPLES)
            c_s, a_s = c + FLOAT_BYTES * (s * c_step + lane), a + FLOAT_BYTES * s * a_step
            run_tile(size, vectors, c_s, c_step, a_s, a_step, a_k, b_l, steps, some, fresh)
            s += size


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
    for lane in range(0, lanes, ROW):
        width, k = min(ROW, lanes - lane), 0
        while k < depth:
            steps, begin = even_share(depth - k, part), 1 if fresh and k == 0 else 0
            panel = b + FLOAT_BYTES * (lane * depth + k * ROW)
            c_l, a_ks = c + FLOAT_BYTES * lane, a + FLOAT_BYTES * k * a_k
            _run(c_l, c_step, a_ks, a_step, a_k, samples, panel, steps, width, begin)
            k += steps


@compiled
def _pack_forward(
    w: Any, order: Any, gates: Any, depth: Any, lane: Any, width: Any, k: Any, steps: Any, space: Any, panel: Any
) -> None:
    """Pack `steps` k of a panel from its lane number `lane` on; `space` holds SIDE * steps floats."""
    if width < ROW:
        clear(panel, ROW * steps)
    for first in range(0, width, SIDE):
        some = min(SIDE, width - first)
        for number in range(some):
            channel = lane + first + number
            source = channel // gates * order[0] + channel % gates * order[1]
            copy(space + FLOAT_BYTES * number * steps, w + FLOAT_BYTES * (source * depth + k), steps)
        for j in range(0, steps, SIDE):
            to = panel + FLOAT_BYTES * (j * ROW + first)
            transpose_block(space + FLOAT_BYTES * j, steps, some, min(SIDE, steps - j), to, ROW)


@compiled
def _pack_backward(
    w: Any, order: Any, gates: Any, depth: Any, lane: Any, width: Any, first: Any, steps: Any, panel: Any
) -> None:
    """Pack `steps` channels of a panel, from number `first` down, from its lane number `lane` on."""
    for channel in range(first, first - steps, -1):
        source = channel // gates * order[0] + channel % gates * order[1]
        copy(panel, w + FLOAT_BYTES * (source * depth + lane), width)
        if width < ROW:
            clear(panel + FLOAT_BYTES * width, ROW - width)
        panel += FLOAT_BYTES * ROW


@compiled
def pack_forward(w: Any, order: Any, gates: Any, units: Any, depth: Any, out: Any) -> None:
    """Pack rows of weights for the products with inputs; `order` is (unit_step, gate_step)."""
    space = np.empty(SIDE * _STEPS + _LINE, np.float32)
    place, lanes = _on_line(space.ctypes.data), gates * units
    for lane in range(0, lanes, ROW):
        for k in range(0, depth, _STEPS):
            panel, steps = out + FLOAT_BYTES * (lane * depth + k * ROW), min(_STEPS, depth - k)
            _pack_forward(w, order, gates, depth, lane, min(ROW, lanes - lane), k, steps, place, panel)
    space[0] = 0  # keeps the memory until here


@compiled
def pack_backward(w: Any, order: Any, gates: Any, units: Any, depth: Any, out: Any) -> None:
    """Pack rows of weights for the products with errors; `order` is (unit_step, gate_step)."""
    channels = gates * units
    for lane in range(0, depth, ROW):
        panel = out + FLOAT_BYTES * lane * channels
        _pack_backward(w, order, gates, depth, lane, min(ROW, depth - lane), channels - 1, channels, panel)


@compiled
def product_of_rows(z: Any, x: Any, samples: Any, w: Any, order: Any, gates: Any, units: Any, depth: Any) -> None:
    """Set z[s][channel] to the chain over x[s][k] and rows of weights, packed on the way."""
    space = np.empty((SIDE + ROW) * _STEPS + _LINE, np.float32)
    place, channels = _on_line(space.ctypes.data), gates * units
    spare = place + FLOAT_BYTES * ROW * _STEPS
    for lane in range(0, channels, ROW):
        width, k = min(ROW, channels - lane), 0
        while k < depth:
            steps, begin = even_share(depth - k, _STEPS), 1 if k == 0 else 0
            _pack_forward(w, order, gates, depth, lane, width, k, steps, spare, place)
            _run(z + FLOAT_BYTES * lane, channels, x + FLOAT_BYTES * k, depth, 1, samples, place, steps, width, begin)
            k += steps
    space[0] = 0  # keeps the memory until here


@compiled
def errors_of_rows(dx: Any, delta: Any, samples: Any, w: Any, order: Any, gates: Any, units: Any, depth: Any) -> None:
    """Set dx[s][i] to the chain over delta[s][channel], descending, and rows of weights, packed on the way."""
    space = np.empty(ROW * _STEPS + _LINE, np.float32)
    place, channels = _on_line(space.ctypes.data), gates * units
    for lane in range(0, depth, ROW):
        width, first = min(ROW, depth - lane), channels - 1
        while first >= 0:
            steps, begin = even_share(first + 1, _STEPS), 1 if first == channels - 1 else 0
            _pack_backward(w, order, gates, depth, lane, width, first, steps, place)
            to, come = dx + FLOAT_BYTES * lane, delta + FLOAT_BYTES * first
            _run(to, depth, come, channels, -1, samples, place, steps, width, begin)
            first -= steps
    space[0] = 0  # keeps the memory until here


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
    space = np.empty(min(_ROW_STEPS, count) * ROW + _LINE, np.float32)
    panel = _on_line(space.ctypes.data)
    for lane in range(0, depth, ROW):
        width = min(ROW, depth - lane)
        for k in range(0, count, _ROW_STEPS):
            steps, begin = min(_ROW_STEPS, count - k), 1 if fresh and k == 0 else 0
            for step in range(steps):
                place = panel + FLOAT_BYTES * step * ROW
                copy(place, x + FLOAT_BYTES * ((k + step) * depth + lane), width)
                if width < ROW:
                    clear(place + FLOAT_BYTES * width, ROW - width)
            for gate in range(some_gates[0], some_gates[1]):
                to = dw + FLOAT_BYTES * (gate * order[1] * depth + lane)
                come = errors + FLOAT_BYTES * (gate * errors_step + k)
                _run(to, order[0] * depth, come, gates * errors_step, 1, units, panel, steps, width, begin)
    space[0] = 0  # keeps the memory until here


@compiled
def sum_rows(total: Any, rows: Any) -> None:
    """Add rows[k] to total, one by one."""
    for k in range(rows.shape[0]):
        for lane in range(total.size):
            total[lane] += rows[k, lane]
