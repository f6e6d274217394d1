"""The loop behind every convolution: a contraction through offset tables, in blocks that fit the caches.

    c[pixel q][lane l] += sum over k of a[a_pixel[q] + a_k[k]] * b[k][l]

Forward, error and gradient of a convolution (`convolution.py`) differ only in what q, l and k are. Each value of c adds
its products in the order of k, each by one fused multiply-add, starting from what c holds, or from +0; so any partition
of q, of l, or of k into consecutive parts gives the same bits.

Lanes are output channels (FP, PG) or input channels (EB), side by side. b is read in panels: all k of one block of
lanes, side by side. Weights are kept in panels, packed once for each update; in PG, where b holds the output errors,
panels are copied when they are needed. a is read number by number, from maps framed in zeros.

Arguments are addresses, and counts of floats; nothing is checked here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..form import FORM
from ..jit import FLOAT_BYTES, compiled
from ..llvm import INDEX_BYTES, LINE_BYTES, read_index
from .rows import copy_rows
from .tile import run_tiles

WIDTH, MOST_VECTORS = FORM.width, FORM.vectors
_PIXELS = np.array(FORM.pixels)
_STEPS = 128  # of k at a time, in FP and EB: their panel stays near for all pixels of a block
_FEW = 24  # pixels that use a panel too seldom for that:
_FEW_STEPS = 576  # their sums stay in registers for longer
_BLOCK = 384  # pixels at a time: their sums stay in the second-level cache for all steps
_ROW_STEPS = 384  # of k at a time, in PG: the panel is read in order, and the sums, the gradients, are slow to reach


@compiled
def even_share(total: Any, most: Any) -> Any:
    """Return the size of the next part if `total` is cut into as few and equal parts of at most `most` as possible."""
    parts = (total + most - 1) // most
    return (total + parts - 1) // parts


@compiled
def vectors_of(lanes: Any) -> Any:
    """Return the number of vectors of the next block of lanes, where `lanes` lanes are left."""
    return even_share((lanes + WIDTH - 1) // WIDTH, MOST_VECTORS)


@compiled
def padded_lanes(lanes: Any) -> Any:
    """Return `lanes` rounded up to whole vectors."""
    return (lanes + WIDTH - 1) // WIDTH * WIDTH


@compiled
def _run(
    vectors: Any,
    c: Any,
    c_pixel: Any,
    c_step: Any,
    a: Any,
    a_pixel: Any,
    a_k: Any,
    b: Any,
    steps: Any,
    pixels: Any,
    lanes: Any,
    fresh: Any,
    a_ahead: Any,
    b_next: Any,
    b_end: Any,
) -> None:
    """Run the pixels in as few tiles as possible, first the larger ones, then those of a pixel less."""
    most = _PIXELS[vectors - 1]
    tiles = (pixels + most - 1) // most
    size = pixels // tiles
    larger = pixels - size * tiles
    for some, count in ((size + 1, larger), (size, tiles - larger)):
        if count:
            run_tiles(
                vectors,
                some,
                c,
                c_pixel,
                c_step,
                a,
                a_pixel,
                a_k,
                b,
                steps,
                count,
                lanes,
                fresh,
                a_ahead,
                b_next,
                b_end,
            )
            done = INDEX_BYTES * some * count
            c_pixel += done
            a_pixel += done
            b_next += LINE_BYTES * steps * count


@compiled
def contract(
    c: Any,
    c_pixel: Any,
    c_step: Any,
    pixels: Any,
    lanes: Any,
    a: Any,
    a_pixel: Any,
    a_k: Any,
    depth: Any,
    b: Any,
    fresh: Any,
) -> None:
    """Run the contraction of FP and EB, to c[c_pixel[q] * c_step + l], with b packed in panels of padded lanes."""
    first = 0
    while first < pixels:
        count = even_share(pixels - first, _BLOCK)
        c_q, a_q = c_pixel + INDEX_BYTES * first, a_pixel + INDEX_BYTES * first
        first += count
        further = FLOAT_BYTES * (read_index(a_pixel, first) - read_index(a_q, 0)) if first < pixels else 0
        panel, lane = b, 0
        while lane < lanes:
            vectors = vectors_of(lanes - lane)
            row = vectors * WIDTH
            width = min(row, lanes - lane)
            target = c + FLOAT_BYTES * lane
            k = 0
            while k < depth:
                steps = even_share(depth - k, _FEW_STEPS if count <= _FEW else _STEPS)
                begin = 1 if fresh and k == 0 else 0
                part = panel + FLOAT_BYTES * k * row
                a_ks = a_k + INDEX_BYTES * k
                after = part + FLOAT_BYTES * steps * row
                end = after if count <= _PIXELS[vectors - 1] else after + FLOAT_BYTES * steps * row
                _run(vectors, target, c_q, c_step, a, a_q, a_ks, part, steps, count, width, begin, further, after, end)
                k += steps
            further = 0  # once, with the first block of lanes
            panel += FLOAT_BYTES * depth * row
            lane += row


@compiled
def contract_rows(
    c: Any,
    c_pixel: Any,
    pixels: Any,
    lanes: Any,
    a: Any,
    a_pixel: Any,
    a_k: Any,
    depth: Any,
    b: Any,
    b_step: Any,
    fresh: Any,
) -> None:
    """Run the contraction of PG, to c packed in panels of padded lanes, at rows c_pixel, with b[k * b_step + l]."""
    space = np.empty((min(_ROW_STEPS, depth) * MOST_VECTORS * WIDTH + LINE_BYTES // FLOAT_BYTES), np.float32)
    panel = (space.ctypes.data + LINE_BYTES - 1) // LINE_BYTES * LINE_BYTES
    target, lane = c, 0
    while lane < lanes:
        vectors = vectors_of(lanes - lane)
        row = vectors * WIDTH
        width = min(row, lanes - lane)
        for k in range(0, depth, _ROW_STEPS):
            steps, begin = min(_ROW_STEPS, depth - k), 1 if fresh and k == 0 else 0
            a_ks, a_further, b_further = a_k + INDEX_BYTES * k, 0, 0
            if k + steps < depth:
                b_further = FLOAT_BYTES * steps * b_step
                if lane == 0:
                    a_further = FLOAT_BYTES * (read_index(a_ks, steps) - read_index(a_ks, 0))
            copy_rows(vectors, panel, b + FLOAT_BYTES * (k * b_step + lane), b_step, steps, width, b_further)
            _run(
                vectors,
                target,
                c_pixel,
                row,
                a,
                a_pixel,
                a_ks,
                panel,
                steps,
                pixels,
                row,
                begin,
                a_further,
                panel,
                panel,
            )
        target += FLOAT_BYTES * pixels * row
        lane += row
    space[0] = 0  # keeps the panel's memory until here
