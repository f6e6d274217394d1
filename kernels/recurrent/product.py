"""Products of rows and packed weights, gradients of weights, and the packing: what the steps of a layer are made of.

Weights w have a row of `depth` floats for each output channel = gates * unit + gate. The row of unit u and gate g is
number u * unit_step + g * gate_step: (gates, 1) where rows are channels, (1, units) where each gate has its own block
of rows, as in PyTorch. They are packed in panels of `row` lanes, each with all its k side by side, and spare lanes 0:

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
from .panels import FOUR, FOUR_VECTORS, MOST_SAMPLES, ROW, VECTORS
from .tile import prefetch_line, run_tile

WIDTH = FORM.width
_VECTORS = np.array(VECTORS)
_FEWER = np.array([0, 0, 1, 2, 2, 4, 4, 4, 4])  # the next smaller number of vectors for which there is code
_STEPS = 192  # of k at a time, where several tiles of samples read the same panel
_ROW_STEPS = 384  # of k at a time, in gradients
_LONG = 1024  # of k at a time, where rows of weights are packed on the way: pages are read from start to end
_BROAD = 4  # panels at a time, for the same reason
_UNITS_AHEAD = 4  # units whose rows are prefetched while they are packed for errors
_UNITS = 12  # at a time, where weights are read as they are: their sums stay in the first-level cache
_FETCHED = 256  # of k at a time, while those of the next units are fetched
_FEW = 256  # samples: with more, weights are packed, which then takes little of the time
_LINE = LINE_BYTES // FLOAT_BYTES
_PAGE = 4096 // FLOAT_BYTES  # rows of such a pitch evict each other from the first-level cache: these are packed
_PANEL = ROW, 1, 0  # where the rows of a panel lie


@compiled
def _on_line(place: Any) -> Any:
    return (place + LINE_BYTES - 1) // LINE_BYTES * LINE_BYTES


@compiled
def panel_lanes(samples: Any) -> Any:
    """Return how wide the panels should be that are read for so many samples at a time."""
    return FOUR if samples == 4 else ROW


@compiled
def packed_size(lanes: Any, depth: Any, row: Any) -> Any:
    """Return the floats of packed weights."""
    return (lanes + row - 1) // row * row * depth


@compiled
def _run(
    c: Any,
    c_step: Any,
    a: Any,
    a_step: Any,
    a_k: Any,
    samples: Any,
    b: Any,
    b_rows: Any,
    steps: Any,
    lanes: Any,
    fresh: Any,
    row: Any,
) -> None:
    """Run all samples in tiles, over up to `row` lanes, by `steps` rows of b; `b_rows` is (b_step, group, b_far)."""
    vectors, lane = _VECTORS[min(samples, MOST_SAMPLES) - 1] if row == ROW else FOUR_VECTORS, 0
    while lane < lanes:
        while vectors * WIDTH >= lanes - lane + WIDTH:  # the last ones take 4, 2 or 1 vectors
            vectors = _FEWER[vectors]
        some, s = min(vectors * WIDTH, lanes - lane), 0
        while s < samples:
            size = even_share(samples - s, MOST_SAMPLES)
            c_s, a_s = c + FLOAT_BYTES * (s * c_step + lane), a + FLOAT_BYTES * s * a_step
            place, (step, group, far) = b + FLOAT_BYTES * lane, b_rows
            run_tile(size, vectors, c_s, c_step, a_s, a_step, a_k, place, step, group, far, steps, some, fresh)
            s += size
        lane += some


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
    turn: Any,
    row: Any,
) -> None:
    """Add a[s * a_step + k * a_k] * b[k][l] over k to c[s * c_step + l], or onto +0 where `fresh`; b is in panels.

    Panels are read from the first to the last; where `turn` is odd, from the last to the first. If each call takes the
    other way, the panels that the one before it has read last are still in the cache.
    """
    panels = (lanes + row - 1) // row
    part = depth if samples <= MOST_SAMPLES else _STEPS
    for number in range(panels):
        lane = row * (panels - 1 - number if turn % 2 else number)
        width, k = min(row, lanes - lane), 0
        while k < depth:
            steps, begin = even_share(depth - k, part), 1 if fresh and k == 0 else 0
            panel = b + FLOAT_BYTES * (lane * depth + k * row)
            c_l, a_ks = c + FLOAT_BYTES * lane, a + FLOAT_BYTES * k * a_k
            _run(c_l, c_step, a_ks, a_step, a_k, samples, panel, (row, 1, 0), steps, width, begin, row)
            k += steps


@compiled
def _errors_by_rows(dx: Any, delta: Any, samples: Any, w: Any, order: Any, gates: Any, units: Any, depth: Any) -> None:
    """Do what `errors_of_rows` does, with rows of weights as they are.

    `depth` is a multiple of WIDTH. There are 2 samples or more, so that no tile has a single one.
    """
    rows = -order[1] * depth, gates, (gates * order[1] - order[0]) * depth
    end = units
    while end > 0:
        some, begin = even_share(end, _STEPS // gates), 1 if end == units else 0
        first = w + FLOAT_BYTES * ((end - 1) * order[0] + (gates - 1) * order[1]) * depth
        come = delta + FLOAT_BYTES * (gates * end - 1)
        for lane in range(0, depth, ROW):
            to, place, lanes = dx + FLOAT_BYTES * lane, first + FLOAT_BYTES * lane, min(ROW, depth - lane)
            _run(to, depth, come, gates * units, -1, samples, place, rows, gates * some, lanes, begin, ROW)
        end -= some


@compiled
def _pack_forward(
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
    """Pack `steps` k of a panel from its lane number `lane` on; `space` holds SIDE * steps floats."""
    if width < row:
        clear(panel, row * steps)
    for first in range(0, width, SIDE):
        some = min(SIDE, width - first)
        for number in range(some):
            channel = lane + first + number
            source = channel // gates * order[0] + channel % gates * order[1]
            copy(space + FLOAT_BYTES * number * steps, w + FLOAT_BYTES * (source * depth + k), steps)
        for j in range(0, steps, SIDE):
            to = panel + FLOAT_BYTES * (j * row + first)
            transpose_block(space + FLOAT_BYTES * j, steps, some, min(SIDE, steps - j), to, row)


@compiled
def _pack_backward(
    w: Any, order: Any, gates: Any, depth: Any, lane: Any, width: Any, first: Any, steps: Any, panels: Any, pitch: Any
) -> None:
    """Pack `steps` channels, from number `first` down, of `width` lanes from number `lane` on, in panels of `pitch`."""
    ahead = _UNITS_AHEAD * gates
    for step in range(steps):
        channel = first - step
        row = w + FLOAT_BYTES * ((channel // gates * order[0] + channel % gates * order[1]) * depth + lane)
        if channel >= ahead:
            for begin in range(0, width, _LINE):
                prefetch_line(row + FLOAT_BYTES * (begin - _UNITS_AHEAD * order[0] * depth))
        for begin in range(0, width, pitch):
            some, to = min(pitch, width - begin), panels + FLOAT_BYTES * (begin * steps + step * pitch)
            copy(to, row + FLOAT_BYTES * begin, some)
            if some < pitch:
                clear(to + FLOAT_BYTES * some, pitch - some)


@compiled
def pack_forward(w: Any, order: Any, gates: Any, units: Any, depth: Any, row: Any, out: Any) -> None:
    """Pack rows of weights for the products with inputs; `order` is (unit_step, gate_step)."""
    space = np.empty(SIDE * min(depth, _LONG) + _LINE, np.float32)
    place, lanes = _on_line(space.ctypes.data), gates * units
    for lane in range(0, lanes, row):
        for k in range(0, depth, _LONG):
            panel, steps = out + FLOAT_BYTES * (lane * depth + k * row), min(_LONG, depth - k)
            _pack_forward(w, order, gates, depth, lane, min(row, lanes - lane), k, steps, place, panel, row)
    space[0] = 0  # keeps the memory until here


@compiled
def pack_backward(w: Any, order: Any, gates: Any, units: Any, depth: Any, row: Any, out: Any) -> None:
    """Pack rows of weights for the products with errors; `order` is (unit_step, gate_step)."""
    channels = gates * units
    for lane in range(0, depth, _BROAD * row):
        width, panels = min(_BROAD * row, depth - lane), out + FLOAT_BYTES * lane * channels
        _pack_backward(w, order, gates, depth, lane, width, channels - 1, channels, panels, row)


@compiled
def _fetch_rows(w: Any, rows: Any, depth: Any, k: Any, steps: Any) -> None:
    """Prefetch `steps` k of some rows of weights."""
    for row in range(rows):
        for begin in range(0, steps, _LINE):
            prefetch_line(w + FLOAT_BYTES * (row * depth + k + begin))


@compiled
def _transpose_sums(sums: Any, lanes: Any, channels: Any, samples: Any, z: Any, z_step: Any) -> None:
    """Set z[s * z_step + c] = sums[c * lanes + s]."""
    for c in range(0, channels, SIDE):
        for s in range(0, samples, SIDE):
            come, to = sums + FLOAT_BYTES * (c * lanes + s), z + FLOAT_BYTES * (s * z_step + c)
            transpose_block(come, lanes, min(SIDE, channels - c), min(SIDE, samples - s), to, z_step)


@compiled
def _product_by_rows(z: Any, x: Any, samples: Any, w: Any, order: Any, gates: Any, units: Any, depth: Any) -> None:
    """Do what `product_of_rows` does for few samples, which are the lanes, so that weights are read as they are.

    Units of a gate follow one another in memory: `order` is (1, units of the layer).
    """
    lanes = (min(samples, ROW) + SIDE - 1) // SIDE * SIDE
    space = np.empty((depth + gates * _UNITS) * lanes + 2 * _LINE, np.float32)
    panel = _on_line(space.ctypes.data)
    sums = panel + FLOAT_BYTES * depth * lanes
    channels = gates * units
    for first in range(0, samples, lanes):
        some = min(lanes, samples - first)
        if some < lanes:
            clear(panel, depth * lanes)
        transpose(x + FLOAT_BYTES * first * depth, some, depth, panel, lanes)
        for unit in range(0, units, _UNITS):
            count = min(_UNITS, units - unit)
            for gate in range(gates):
                rows = w + FLOAT_BYTES * (unit * order[0] + gate * order[1]) * depth
                following = rows + FLOAT_BYTES * order[1] * depth
                if gate == gates - 1:
                    following = w + FLOAT_BYTES * (unit + _UNITS) * order[0] * depth
                for k in range(0, depth, _FETCHED):
                    steps = min(_FETCHED, depth - k)
                    _fetch_rows(following, count, depth, k, steps)
                    to, begin = sums + FLOAT_BYTES * gate * lanes, 1 if k == 0 else 0
                    part, b = rows + FLOAT_BYTES * k, panel + FLOAT_BYTES * k * lanes
                    _run(to, gates * lanes, part, depth, 1, count, b, (lanes, 1, 0), steps, some, begin, ROW)
            _transpose_sums(
                sums, lanes, gates * count, some, z + FLOAT_BYTES * (first * channels + gates * unit), channels
            )
    space[0] = 0  # keeps the memory until here


@compiled
def product_of_rows(z: Any, x: Any, samples: Any, w: Any, order: Any, gates: Any, units: Any, depth: Any) -> None:
    """Set z[s][channel] to the chain over x[s][k] and rows of weights, packed on the way or not."""
    if samples <= _FEW and order[0] == 1:
        _product_by_rows(z, x, samples, w, order, gates, units, depth)
        return
    channels, most = gates * units, min(depth, _LONG)
    space = np.empty((SIDE + ROW) * most + _LINE, np.float32)
    place = _on_line(space.ctypes.data)
    spare = place + FLOAT_BYTES * ROW * most
    for lane in range(0, channels, ROW):
        width, to = min(ROW, channels - lane), z + FLOAT_BYTES * lane
        for first in range(0, depth, most):
            packed, k = min(most, depth - first), 0
            _pack_forward(w, order, gates, depth, lane, width, first, packed, spare, place, ROW)
            while k < packed:
                steps, begin = even_share(packed - k, _STEPS), 1 if first + k == 0 else 0
                panel = place + FLOAT_BYTES * k * ROW
                _run(
                    to,
                    channels,
                    x + FLOAT_BYTES * (first + k),
                    depth,
                    1,
                    samples,
                    panel,
                    _PANEL,
                    steps,
                    width,
                    begin,
                    ROW,
                )
                k += steps
    space[0] = 0  # keeps the memory until here


@compiled
def errors_of_rows(dx: Any, delta: Any, samples: Any, w: Any, order: Any, gates: Any, units: Any, depth: Any) -> None:
    """Set dx[s][i] to the chain over delta[s][channel], descending, and rows of weights, packed on the way or not."""
    if samples > 1 and depth % WIDTH == 0 and depth % _PAGE:
        _errors_by_rows(dx, delta, samples, w, order, gates, units, depth)
        return
    space = np.empty(_BROAD * ROW * _STEPS + _LINE, np.float32)
    place, channels = _on_line(space.ctypes.data), gates * units
    for group in range(0, depth, _BROAD * ROW):
        first = channels - 1
        while first >= 0:
            steps, begin = even_share(first + 1, _STEPS), 1 if first == channels - 1 else 0
            end = min(depth, group + _BROAD * ROW)
            _pack_backward(w, order, gates, depth, group, end - group, first, steps, place, ROW)
            for lane in range(group, end, ROW):
                to, come = dx + FLOAT_BYTES * lane, delta + FLOAT_BYTES * first
                panel = place + FLOAT_BYTES * (lane - group) * steps
                _run(to, depth, come, channels, -1, samples, panel, _PANEL, steps, min(ROW, end - lane), begin, ROW)
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
                _run(to, order[0] * depth, come, gates * errors_step, 1, units, panel, _PANEL, steps, width, begin, ROW)
    space[0] = 0  # keeps the memory until here


@compiled
def sum_rows(total: Any, rows: Any) -> None:
    """Add rows to total, one by one; `rows` holds them one after the other."""
    lanes = total.size
    for begin in range(0, rows.size, lanes):
        row = rows[begin : begin + lanes]
        for lane in range(lanes):
            total[lane] += row[lane]
