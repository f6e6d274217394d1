"""Rotary positions (Su et al., 2021): pairs of channels of a row, turned by angles that grow with
the row's number.

    y[a] = x[a] * cos - x[b] * sin
    y[b] = x[b] * cos + x[a] * sin

Pair i of the `size` channels of a part is (i, i + size / 2), as in Llama; where `interleaved`, it
is (2 i, 2 i + 1), as in the paper. In row t its angle is t * base ^ (-2 i / size). Errors are
turned back, by the angles of other sign. Sines and cosines are computed in float64 and rounded
once.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..jit import Floats, compiled, dense, same_shape, source, target


def turns(rows: int, size: int, base: float) -> tuple[Floats, Floats]:
    """Return the cosines and the sines (rows, size / 2) of all angles of a part of `size`
    channels.
    """
    rates = [base ** (-2 * pair / size) for pair in range(size // 2)]
    # By the C library: NumPy's own sines depend on how wide the processor's vectors are.
    cosines, sines = [], []
    for row in range(rows):
        angles = [row * rate for rate in rates]
        cosines.append(list(map(math.cos, angles)))
        sines.append(list(map(math.sin, angles)))
    return np.array(cosines, np.float32), np.array(sines, np.float32)


def rotate(
    x: Floats,
    y: Floats,
    cosines: Floats,
    sines: Floats,
    *,
    parts: int,
    rotated: int,
    interleaved: bool,
    size: int | None = None,
) -> None:
    """Write `x` with its pairs turned to `y`, both (n, rows, columns, channels), in place; `y` may
    be `x`.

    The channels are groups of `parts` parts, the first `rotated` of which are turned; the others
    stay. A part has `size` channels, by default those of its pairs; what is behind these stays.
    Raise ValueError where shapes do not fit.
    """
    same_shape(x, y, "inputs and outputs")
    if cosines.ndim != 2 or cosines.shape != sines.shape or len(cosines) != x.shape[1]:
        raise ValueError(
            f"cosines {cosines.shape} and sines {sines.shape}: both should be ({x.shape[1]}, pairs)"
        )
    pairs = cosines.shape[1]
    size = 2 * pairs if size is None else size
    if not cosines.size or size < 2 * pairs or x.shape[3] % (size * parts):
        raise ValueError(f"{x.shape[3]} channels are no groups of {parts} parts of {size}")
    tables = dense(cosines.reshape(-1), "cosines"), dense(sines.reshape(-1), "sines")
    _rotate(
        *source(x, "x"),
        *target(y, "y"),
        *tables,
        pairs,
        int(size),
        int(parts),
        int(rotated),
        bool(interleaved),
    )


def warm() -> None:
    """Compile the kernel: call it once on tiny arrays, as training calls it."""
    x = np.ones((1, 1, 1, 6), np.float32)
    rotate(x, x, *turns(1, 2, 10000.0), parts=3, rotated=2, interleaved=False)


# Offsets are unsigned so that loops become vector code, as in pool.py.


@compiled
def _load(x: Any, at: Any, step: Any, apart: Any, here: Any, there: Any) -> None:
    """Copy the first and the second channels of pairs, `step` from one another and `apart`."""
    for pair in range(np.uint64(here.size)):
        here[pair] = x[at + step * pair]
        there[pair] = x[at + apart + step * pair]


@compiled
def _store(
    here: Any,
    there: Any,
    cosines: Any,
    sines: Any,
    turn: Any,
    y: Any,
    to: Any,
    step: Any,
    apart: Any,
) -> None:
    """Write pairs turned by the angles from number `turn` on."""
    for pair in range(np.uint64(here.size)):
        y[to + step * pair] = here[pair] * cosines[turn + pair] - there[pair] * sines[turn + pair]
    for pair in range(np.uint64(here.size)):
        y[to + apart + step * pair] = (
            there[pair] * cosines[turn + pair] + here[pair] * sines[turn + pair]
        )


@compiled
def _rotate(
    x: Any,
    extent: Any,
    y: Any,
    y_extent: Any,
    cosines: Any,
    sines: Any,
    pairs: Any,
    part_size: Any,
    parts: Any,
    rotated: Any,
    interleaved: Any,
) -> None:
    n, rows, columns, channels, pitch = extent
    here, there = np.empty(pairs, np.float32), np.empty(pairs, np.float32)  # so that y may be x
    size, count, both = np.uint64(part_size), np.uint64(pairs), np.uint64(2 * pairs)
    for pixel in range(n * rows * columns):
        at, to = np.uint64(pixel * pitch), np.uint64(pixel * y_extent[4])
        turn = np.uint64(pixel // columns % rows * pairs)
        for part in range(channels // part_size):
            first = np.uint64(part) * size
            turns_it = part % parts < rotated
            for c in range(both if turns_it else np.uint64(0), size):
                y[to + first + c] = x[at + first + c]
            if not turns_it:
                continue
            if interleaved:
                _load(x, at + first, np.uint64(2), np.uint64(1), here, there)
                _store(here, there, cosines, sines, turn, y, to + first, np.uint64(2), np.uint64(1))
            else:
                _load(x, at + first, np.uint64(1), count, here, there)
                _store(here, there, cosines, sines, turn, y, to + first, np.uint64(1), count)
