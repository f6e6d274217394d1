"""Products with rows of weights that are used once, for all steps at a time: as they are, or packed on the way.

Rows of weights and their order are those of `packing.py`. With few samples, packing would take as long as the products.

Arguments are addresses, and counts of floats; nothing is checked here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..conv.microkernel import even_share
from ..conv.transpose import HALF, SIDE, transpose_block
from ..jit import FLOAT_BYTES, compiled
from ..llvm import clear
from .packing import BROAD, LINE, LONG, on_line, pack_some_backward, pack_some_forward, rows_for_errors, transpose
from .panels import PANEL, ROW
from .product import STEPS, WIDTH, run_tiles
from .tile import prefetch_line

_UNITS = 12  # at a time, where weights are read as they are: their sums stay in the first-level cache
_FETCHED = 256  # of k at a time, while those of the next units are fetched
_FEW = 256  # samples: with more, weights are packed, which then takes little of the time
_PAGE = 4096 // FLOAT_BYTES  # rows of such a pitch evict each other from the first-level cache: these are packed


@compiled
def _errors_by_rows(dx: Any, delta: Any, samples: Any, w: Any, order: Any, gates: Any, units: Any, depth: Any) -> None:
    """Do what `errors_of_rows` does, with rows of weights as they are.

    `depth` is a multiple of WIDTH.
    """
    end = units
    while end > 0:
        some, begin = even_share(end, STEPS // gates), 1 if end == units else 0
        first, rows = rows_for_errors(w, order, gates, end, depth)
        come = delta + FLOAT_BYTES * (gates * end - 1)
        for lane in range(0, depth, ROW):
            to, place, lanes = dx + FLOAT_BYTES * lane, first + FLOAT_BYTES * lane, min(ROW, depth - lane)
            run_tiles(to, depth, come, gates * units, -1, samples, place, rows, gates * some, lanes, begin, ROW)
        end -= some


@compiled
def _fetch_rows(w: Any, rows: Any, depth: Any, k: Any, steps: Any) -> None:
    """Prefetch `steps` k of some rows of weights."""
    for row in range(rows):
        for begin in range(0, steps, LINE):
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
    space = np.empty((depth + gates * _UNITS) * lanes + 2 * LINE, np.float32)
    panel = on_line(space.ctypes.data)
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
                    run_tiles(to, gates * lanes, part, depth, 1, count, b, (lanes, 1, 0), steps, some, begin, ROW)
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
    channels, most = gates * units, min(depth, LONG)
    space = np.empty((HALF + ROW) * most + LINE, np.float32)
    place = on_line(space.ctypes.data)
    spare = place + FLOAT_BYTES * ROW * most
    for lane in range(0, channels, ROW):
        width, to = min(ROW, channels - lane), z + FLOAT_BYTES * lane
        for first in range(0, depth, most):
            packed, k = min(most, depth - first), 0
            pack_some_forward(w, order, gates, depth, lane, width, first, packed, spare, place, ROW)
            while k < packed:
                steps, begin = even_share(packed - k, STEPS), 1 if first + k == 0 else 0
                panel = place + FLOAT_BYTES * k * ROW
                run_tiles(
                    to,
                    channels,
                    x + FLOAT_BYTES * (first + k),
                    depth,
                    1,
                    samples,
                    panel,
                    PANEL,
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
    if depth % WIDTH == 0 and depth % _PAGE:
        _errors_by_rows(dx, delta, samples, w, order, gates, units, depth)
        return
    space = np.empty(BROAD * ROW * STEPS + LINE, np.float32)
    place, channels = on_line(space.ctypes.data), gates * units
    for group in range(0, depth, BROAD * ROW):
        first = channels - 1
        while first >= 0:
            steps, begin = even_share(first + 1, STEPS), 1 if first == channels - 1 else 0
            end = min(depth, group + BROAD * ROW)
            pack_some_backward(w, order, gates, depth, group, end - group, first, steps, place, ROW)
            for lane in range(group, end, ROW):
                to, come = dx + FLOAT_BYTES * lane, delta + FLOAT_BYTES * first
                panel = place + FLOAT_BYTES * (lane - group) * steps
                run_tiles(to, depth, come, channels, -1, samples, panel, PANEL, steps, min(ROW, end - lane), begin, ROW)
            first -= steps
    space[0] = 0  # keeps the memory until here
