"""Packed weights: panels of ROW lanes, whose k lie side by side; and gradients of rows of weights,
and of biases.

Weights w have a row of `depth` floats for each output channel. They are packed in panels, and spare
lanes are 0:

- forward: lanes are output channels, k the inputs, ascending
- backward: lanes are inputs, k the output channels, descending

Arguments are addresses, and counts of floats; nothing is checked here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..conv.layout import HALF, SIDE, transpose_block, transpose_half, transpose_rows
from ..conv.microkernel import even_share
from ..jit import FLOAT_BYTES, compiled
from ..llvm import INDEX_BYTES, LINE_BYTES, clear, copy, prefetch_line
from .step_parts import MOST_SAMPLES, ROW, Tile, run_tiles

_LONG = 1024  # of k at a time: pages are read from start to end
_BROAD = 4  # panels of ROW at a time, for the same reason
_FETCHED = 8 * SIDE  # how many numbers of a row are prefetched before they are packed for products
_ROWS_AHEAD = 16  # rows that are prefetched while they are packed for errors
_LINE = LINE_BYTES // FLOAT_BYTES
_ROW_STEPS = 384  # of k at a time, in gradients
_SPACE = (
    1 << 16
)  # floats of inputs at a time: with few k, a row of gradients is then written from start to end


@compiled
def _on_line(place: Any) -> Any:
    return (place + LINE_BYTES - 1) // LINE_BYTES * LINE_BYTES


@compiled
def _pack_panel(
    w: Any, depth: Any, lane: Any, width: Any, k: Any, steps: Any, space: Any, panel: Any
) -> None:
    """Pack `steps` k of a panel from its lane number `lane` on; `space` holds HALF * steps floats.

    Whole blocks are transposed straight from the rows to lines that follow one another, the rest by
    way of `space`.
    """
    if width < ROW:
        clear(panel, ROW * steps)
    table = np.empty(ROW, np.int64)
    for number in range(width):
        table[number] = w + FLOAT_BYTES * ((lane + number) * depth + k)
    begins, whole, blocks = table.ctypes.data, width // HALF * HALF, steps // SIDE * SIDE
    for j in range(0, blocks, SIDE):
        for first in range(0, whole, SIDE):
            rows, to = begins + INDEX_BYTES * first, panel + FLOAT_BYTES * (j * ROW + first)
            if first + SIDE <= whole:
                transpose_rows(rows, j, to, ROW, _FETCHED, SIDE * ROW)
            else:
                transpose_half(rows, j, to, ROW, _FETCHED, SIDE * ROW)
    for first in range(0, width, HALF):
        begin, some = blocks if first < whole else 0, min(HALF, width - first)
        rest = steps - begin
        for number in range(some):
            copy(
                space + FLOAT_BYTES * number * rest,
                table[first + number] + FLOAT_BYTES * begin,
                rest,
            )
        for j in range(0, rest, SIDE):
            to = panel + FLOAT_BYTES * ((begin + j) * ROW + first)
            transpose_block(space + FLOAT_BYTES * j, rest, some, min(SIDE, rest - j), to, ROW)


@compiled
def pack_forward(w: Any, channels: Any, depth: Any, out: Any) -> None:
    """Pack rows of weights for the products with inputs."""
    space = np.empty(HALF * min(depth, _LONG) + _LINE, np.float32)
    place = _on_line(space.ctypes.data)
    for lane in range(0, channels, ROW):
        for k in range(0, depth, _LONG):
            panel = out + FLOAT_BYTES * (lane * depth + k * ROW)
            _pack_panel(
                w, depth, lane, min(ROW, channels - lane), k, min(_LONG, depth - k), place, panel
            )
    space[0] = 0  # keeps the memory until here


@compiled
def pack_backward(w: Any, channels: Any, depth: Any, out: Any) -> None:
    """Pack rows of weights for the products with errors."""
    for lane in range(0, depth, _BROAD * ROW):
        width, panels = min(_BROAD * ROW, depth - lane), out + FLOAT_BYTES * lane * channels
        for step in range(channels):
            channel = channels - 1 - step
            row = w + FLOAT_BYTES * (channel * depth + lane)
            if channel >= _ROWS_AHEAD:
                for begin in range(0, width, _LINE):
                    prefetch_line(row + FLOAT_BYTES * (begin - _ROWS_AHEAD * depth))
            for begin in range(0, width, ROW):
                some, to = (
                    min(ROW, width - begin),
                    panels + FLOAT_BYTES * (begin * channels + step * ROW),
                )
                copy(to, row + FLOAT_BYTES * begin, some)
                if some < ROW:
                    clear(to + FLOAT_BYTES * some, ROW - some)


@compiled
def transpose(source: Any, rows: Any, columns: Any, out: Any, out_step: Any) -> None:
    """Set out[j * out_step + i] = source[i * columns + j] for i < rows and j < columns."""
    for i in range(0, rows, SIDE):
        for j in range(0, columns, SIDE):
            come, to = (
                source + FLOAT_BYTES * (i * columns + j),
                out + FLOAT_BYTES * (j * out_step + i),
            )
            transpose_block(
                come, columns, min(SIDE, rows - i), min(SIDE, columns - j), to, out_step
            )


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
    channels: Any,
    depth: Any,
    errors: Any,
    errors_step: Any,
    x: Any,
    count: Any,
    fresh: Any,
) -> None:
    """Add errors[channel * errors_step + k] * x[k * depth + i] over k < count to the gradients of
    rows of weights.

    `channels` are some rows: (the first, their number, the step from one to the next). Where
    `fresh`, sums start from +0.
    """
    begin, rows, step = channels
    most = min(_ROW_STEPS, count)
    broad = min(max(_SPACE // (most * ROW), 1), (depth + ROW - 1) // ROW) * ROW
    space = np.empty(most * broad + _LINE, np.float32)
    panels = _on_line(space.ctypes.data)
    for first in range(0, depth, broad):
        end = min(depth, first + broad)
        for k in range(0, count, _ROW_STEPS):
            steps, starts = min(_ROW_STEPS, count - k), 1 if fresh and k == 0 else 0
            _pack_inputs(x + FLOAT_BYTES * k * depth, depth, first, end, steps, panels)
            row = 0
            while row < rows:
                some, channel = even_share(rows - row, MOST_SAMPLES), begin + row * step
                come = errors + FLOAT_BYTES * (channel * errors_step + k)
                for lane in range(first, end, ROW):
                    tile = Tile(
                        c=dw + FLOAT_BYTES * (channel * depth + lane),
                        c_step=step * depth,
                        a=come,
                        a_step=step * errors_step,
                        a_k=1,
                        b=panels + FLOAT_BYTES * (lane - first) * steps,
                        steps=steps,
                        lanes=min(ROW, end - lane),
                        fresh=starts,
                    )
                    run_tiles(some, tile)
                row += some
    space[0] = 0  # keeps the memory until here


@compiled
def sum_rows(total: Any, rows: Any) -> None:
    """Add rows to total, one by one; `rows` holds them one after the other."""
    lanes = total.size
    for begin in range(0, rows.size, lanes):
        row = rows[begin : begin + lanes]
        for lane in range(lanes):
            total[lane] += row[lane]
