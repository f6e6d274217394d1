"""Gradients of rows of weights, and of biases.

Arguments are addresses, and counts of floats; nothing is checked here. Rows and their order are those of `packing.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import FLOAT_BYTES, compiled
from ..llvm import clear, copy
from .packing import LINE, on_line
from .panels import ROW
from .product import PANEL, run_tiles

_ROW_STEPS = 384  # of k at a time


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
    space = np.empty(min(_ROW_STEPS, count) * ROW + LINE, np.float32)
    panel = on_line(space.ctypes.data)
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
                run_tiles(
                    to, order[0] * depth, come, gates * errors_step, 1, units, panel, PANEL, steps, width, begin, ROW
                )
    space[0] = 0  # keeps the memory until here


@compiled
def sum_rows(total: Any, rows: Any) -> None:
    """Add rows to total, one by one; `rows` holds them one after the other."""
    lanes = total.size
    for begin in range(0, rows.size, lanes):
        row = rows[begin : begin + lanes]
        for lane in range(lanes):
            total[lane] += row[lane]
