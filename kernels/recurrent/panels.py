"""How wide panels of packed weights are, and the tiles that read them: known without Numba.

A panel holds some lanes of all k, side by side. Most are of ROW lanes, which suit any number of samples. The weights of
whole layers are packed for the samples that there are: four take all registers with panels of another width.
"""

from __future__ import annotations

from ..form import FORM

VECTORS = {"avx512": (8, 8, 8, 4, 4, 4), "neon": (8, 8, 8, 4, 4, 4)}.get(FORM.name, (8, 4, 4, 2, 2, 2))
"""The most vectors of a tile of one sample, two, and so on, in panels of ROW: as many sums as the registers hold. There
is code for this number, and for 4, 2 and 1."""

MOST_VECTORS, MOST_SAMPLES = VECTORS[0], len(VECTORS)
ROW = MOST_VECTORS * FORM.width
"""Lanes of a panel."""

PANEL = ROW, 1, 0
"""Where the rows of such a panel lie: (b_step, group, b_far) of the tile."""

FOUR, FOUR_VECTORS, FOUR_AHEAD = {"avx512": (96, 6, 12), "avx2": (24, 3, 24)}.get(FORM.name, (ROW, VECTORS[3], 12))
"""Lanes of a panel for four samples, the most vectors of a tile that reads it, and how many rows ahead it prefetches:
short rows more, as they are read sooner."""
