"""Gradients of rows of weights, and of biases.

Arguments are addresses, and counts of floats; nothing is checked here. Rows and their order are those of `packing.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..conv.microkernel import even_share
from ..jit import FLOAT_BYTES, compiled
from ..llvm import clear, copy
from .packing import LINE, on_line
from .panels import MOST_SAMPLES, PANEL, ROW
from .product import run_tiles

_ROW_STEPS = 384  # of k at a time
_SPACE = 1 << 16  # floats of inputs at a time: with few k, a row of gradients is then written from start to end


@compiled
def _pack_inputs(x: Any, depth: Any, first: Any, end: Any, steps: Any, panels: Any) -> None:
    """Pack `steps` rows of inputs, their lanes from `first` to `end`, in panels of ROW lanes."""
    for lane in range(first, end, ROW):
        width, panel = min(ROW, end - lane), panels + FLOAT_BYTES * (lane - first) * steps
        for step in range(steps):
            to = panel + FLOAT_BYTES * step * ROW
            copy(to, x + FLOAT_BYTES * (step * depth + lane), width)
            if width < ROW:
                clear(to + FLOAT_BYTES * width, ROW - width)


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
    most, row = min(_ROW_STEPS, count), order[0] * depth
    broad = min(max(_SPACE // (most * ROW), 1), (depth + ROW - 1) // ROW) * ROW
    space = np.empty(most * broad + LINE, np.float32)
    panels = on_line(space.ctypes.data)
    for first in range(0, depth, broad):
        end = min(depth, first + broad)
        for k in range(0, count, _ROW_STEPS):
            steps, begin = min(_ROW_STEPS, count - k), 1 if fresh and k == 0 else 0
            _pack_inputs(x + FLOAT_BYTES * k * depth, depth, first, end, steps, panels)
            for gate in range(some_gates[0], some_gates[1]):
                unit = 0
                while unit < units:
                    some = even_share(units - unit, MOST_SAMPLES)
                    come = errors + FLOAT_BYTES * ((unit * gates + gate) * errors_step + k)
                    for lane in range(first, end, ROW):
                        to = dw + FLOAT_BYTES * (gate * order[1] * depth + unit * row + lane)
                        panel, width = panels + FLOAT_BYTES * (lane - first) * steps, min(ROW, end - lane)
                        run_tiles(to, row, come, gates * errors_step, 1, some, panel, PANEL, steps, width, begin, ROW)
                    unit += some
    space[0] = 0  # keeps the memory until here


@compiled
def sum_rows(total: Any, rows: Any) -> None:
    """Add rows to total, one by one; `rows` holds them one after the other."""
    lanes = total.size
    for begin in range(0, rows.size, lanes):
        row = rows[begin : begin + lanes]
        for lane in range(lanes):
            total[lane] += row[lane]
