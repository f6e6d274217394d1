"""Packed weights: panels of some lanes, whose k lie side by side.

Weights w have a row of `depth` floats for each output channel = gates * unit + gate. The row of unit u and gate g is
number u * unit_step + g * gate_step: (gates, 1) where rows are channels, (1, units) where each gate has its own block
of rows, as in PyTorch. They are packed in panels of `row` lanes, and spare lanes are 0:

- forward: lanes are output channels, k the inputs, ascending
- backward: lanes are inputs, k the output channels, descending

Arguments are addresses, and counts of floats; nothing is checked here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..conv.transpose import HALF, SIDE, transpose_block, transpose_half, transpose_rows
from ..jit import FLOAT_BYTES, compiled
from ..llvm import INDEX_BYTES, LINE_BYTES, clear, copy
from .panels import FOUR, ROW
from .tile import prefetch_line

LONG = 1024  # of k at a time, where rows of weights are packed on the way: pages are read from start to end
BROAD = 4  # panels of ROW at a time, for the same reason
_FETCHED = 8 * SIDE  # how many numbers of a row are prefetched before they are packed for products
_UNITS_AHEAD = 4  # units whose rows are prefetched while they are packed for errors
LINE = LINE_BYTES // FLOAT_BYTES


@compiled
def on_line(place: Any) -> Any:
    return (place + LINE_BYTES - 1) // LINE_BYTES * LINE_BYTES


@compiled
def panel_lanes(samples: Any) -> Any:
    """Return the width of panels that are read for `samples` samples at a time."""
    return FOUR if samples == 4 else ROW


@compiled
def packed_size(lanes: Any, depth: Any, row: Any) -> Any:
    """Return the floats of packed weights."""
    return (lanes + row - 1) // row * row * depth


@compiled
def pack_some_forward(
    w: Any,
    order: Any,
    gates: Any,
    depth: Any,
    lane: Any,
    width: Any,
    k: Any,
    steps: Any,
    space: Any,
    panel: Any,
    row: Any,
) -> None:
    """Pack `steps` k of a panel from its lane number `lane` on; `space` holds HALF * steps floats.

    Whole blocks are transposed straight from the rows to lines that follow one another, the rest by way of `space`.
    """
    if width < row:
        clear(panel, row * steps)
    table = np.empty(ROW, np.int64)
    for number in range(width):
        channel = lane + number
        table[number] = w + FLOAT_BYTES * ((channel // gates * order[0] + channel % gates * order[1]) * depth + k)
    begins, whole, blocks = table.ctypes.data, width // HALF * HALF, steps // SIDE * SIDE
    for j in range(0, blocks, SIDE):
        for first in range(0, whole, SIDE):
            rows, to = begins + INDEX_BYTES * first, panel + FLOAT_BYTES * (j * row + first)
            if first + SIDE <= whole:
                transpose_rows(rows, j, to, row, _FETCHED, SIDE * row)
            else:
                transpose_half(rows, j, to, row, _FETCHED, SIDE * row)
    for first in range(0, width, HALF):
        begin, some = blocks if first < whole else 0, min(HALF, width - first)
        rest = steps - begin
        for number in range(some):
            copy(space + FLOAT_BYTES * number * rest, table[first + number] + FLOAT_BYTES * begin, rest)
        for j in range(0, rest, SIDE):
            to = panel + FLOAT_BYTES * ((begin + j) * row + first)
            transpose_block(space + FLOAT_BYTES * j, rest, some, min(SIDE, rest - j), to, row)


@compiled
def pack_some_backward(
    w: Any, order: Any, gates: Any, depth: Any, lane: Any, width: Any, first: Any, steps: Any, panels: Any, pitch: Any
) -> None:
    """Pack `steps` channels, from number `first` down, of `width` lanes from number `lane` on, in panels of `pitch`."""
    ahead = _UNITS_AHEAD * gates
    for step in range(steps):
        channel = first - step
        row = w + FLOAT_BYTES * ((channel // gates * order[0] + channel % gates * order[1]) * depth + lane)
        if channel >= ahead:
            for begin in range(0, width, LINE):
                prefetch_line(row + FLOAT_BYTES * (begin - _UNITS_AHEAD * order[0] * depth))
        for begin in range(0, width, pitch):
            some, to = min(pitch, width - begin), panels + FLOAT_BYTES * (begin * steps + step * pitch)
            copy(to, row + FLOAT_BYTES * begin, some)
            if some < pitch:
                clear(to + FLOAT_BYTES * some, pitch - some)


@compiled
def pack_forward(w: Any, order: Any, gates: Any, units: Any, depth: Any, row: Any, out: Any) -> None:
    """Pack rows of weights for the products with inputs; `order` is (unit_step, gate_step)."""
    space = np.empty(HALF * min(depth, LONG) + LINE, np.float32)
    place, lanes = on_line(space.ctypes.data), gates * units
    for lane in range(0, lanes, row):
        for k in range(0, depth, LONG):
            panel, steps = out + FLOAT_BYTES * (lane * depth + k * row), min(LONG, depth - k)
            pack_some_forward(w, order, gates, depth, lane, min(row, lanes - lane), k, steps, place, panel, row)
    space[0] = 0  # keeps the memory until here


@compiled
def pack_backward(w: Any, order: Any, gates: Any, units: Any, depth: Any, row: Any, out: Any) -> None:
    """Pack rows of weights for the products with errors; `order` is (unit_step, gate_step)."""
    channels = gates * units
    most = BROAD * ROW // row * row
    for lane in range(0, depth, most):
        width, panels = min(most, depth - lane), out + FLOAT_BYTES * lane * channels
        pack_some_backward(w, order, gates, depth, lane, width, channels - 1, channels, panels, row)


@compiled
def rows_for_errors(w: Any, order: Any, gates: Any, units: Any, depth: Any) -> Any:
    """Return where rows of weights lie that are read as they are, from the last output channel down, as tiles take it.

    That is: the place of the last row, and (b_step, group, b_far).
    """
    last = w + FLOAT_BYTES * ((units - 1) * order[0] + (gates - 1) * order[1]) * depth
    return last, (-order[1] * depth, gates, (gates * order[1] - order[0]) * depth)


@compiled
def transpose(source: Any, rows: Any, columns: Any, out: Any, out_step: Any) -> None:
    """Set out[j * out_step + i] = source[i * columns + j] for i < rows and j < columns."""
    for i in range(0, rows, SIDE):
        for j in range(0, columns, SIDE):
            come, to = source + FLOAT_BYTES * (i * columns + j), out + FLOAT_BYTES * (j * out_step + i)
            transpose_block(come, columns, min(SIDE, rows - i), min(SIDE, columns - j), to, out_step)
