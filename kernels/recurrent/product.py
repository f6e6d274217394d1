"""Products of rows and packed weights: what the steps of a layer are made of.

Arguments are addresses, and counts of floats; nothing is checked here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..conv.microkernel import even_share
from ..form import FORM
from ..jit import FLOAT_BYTES, compiled
from .panels import FOUR_VECTORS, MOST_SAMPLES, ROW, VECTORS
from .tile import run_tile

WIDTH = FORM.width
_VECTORS = np.array(VECTORS)
_FEWER = np.array([0, 0, 1, 2, 2, 4, 4, 4, 4])  # the next smaller number of vectors for which there is code
STEPS = 192  # of k at a time, where several tiles of samples read the same panel


@compiled
def run_tiles(
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
    part = depth if samples <= MOST_SAMPLES else STEPS
    for number in range(panels):
        lane = row * (panels - 1 - number if turn % 2 else number)
        width, k = min(row, lanes - lane), 0
        while k < depth:
            steps, begin = even_share(depth - k, part), 1 if fresh and k == 0 else 0
            panel = b + FLOAT_BYTES * (lane * depth + k * row)
            c_l, a_ks = c + FLOAT_BYTES * lane, a + FLOAT_BYTES * k * a_k
            run_tiles(c_l, c_step, a_ks, a_step, a_k, samples, panel, (row, 1, 0), steps, width, begin, row)
            k += steps
