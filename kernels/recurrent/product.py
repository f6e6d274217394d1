"""Products of rows and packed weights: what the steps of a layer are made of.

Arguments are addresses, and counts of floats; nothing is checked here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..conv.microkernel import even_share
from ..form import FORM
from ..jit import FLOAT_BYTES, compiled
from .tile import run_tile

WIDTH, ROW, MOST_SAMPLES = FORM.width, FORM.panel, len(FORM.panel_vectors)
_VECTORS = np.array(FORM.panel_vectors)
_FEWER = np.array([0, 0, 1, 2, 2, 4, 4, 4, 4])  # the next smaller number of vectors for which there is code
_STEPS = 192  # of k at a time, where several tiles of samples read the same panel


@compiled
def run_tiles(
    c: Any, c_step: Any, a: Any, a_step: Any, a_k: Any, samples: Any, b: Any, steps: Any, lanes: Any, fresh: Any
) -> None:
    """Run all samples in tiles, over up to ROW lanes, by `steps` rows of b."""
    vectors, lane = _VECTORS[min(samples, MOST_SAMPLES) - 1], 0
    while lane < lanes:
        while vectors * WIDTH >= lanes - lane + WIDTH:  # the last ones take 4, 2 or 1 vectors
            vectors = _FEWER[vectors]
        some, s = min(vectors * WIDTH, lanes - lane), 0
        while s < samples:
            size = even_share(samples - s, MOST_SAMPLES)
            c_s, a_s = c + FLOAT_BYTES * (s * c_step + lane), a + FLOAT_BYTES * s * a_step
            run_tile(size, vectors, c_s, c_step, a_s, a_step, a_k, b + FLOAT_BYTES * lane, steps, some, fresh)
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
) -> None:
    """Add a[s * a_step + k * a_k] * b[k][l] over k to c[s * c_step + l], or onto +0 where `fresh`; b is in panels.

    Panels are read from the first to the last; where `turn` is odd, from the last to the first. If each call takes the
    other way, the panels that the one before it has read last are still in the cache.
    """
    panels = (lanes + ROW - 1) // ROW
    part = depth if samples <= MOST_SAMPLES else _STEPS
    for number in range(panels):
        lane = ROW * (panels - 1 - number if turn % 2 else number)
        width, k = min(ROW, lanes - lane), 0
        while k < depth:
            steps, begin = even_share(depth - k, part), 1 if fresh and k == 0 else 0
            panel = b + FLOAT_BYTES * (lane * depth + k * ROW)
            run_tiles(
                c + FLOAT_BYTES * lane,
                c_step,
                a + FLOAT_BYTES * k * a_k,
                a_step,
                a_k,
                samples,
                panel,
                steps,
                width,
                begin,
            )
            k += steps
