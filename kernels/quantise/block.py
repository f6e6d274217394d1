"""Blocks of narrow numbers with one scale, a power of two: OCP's microscaling formats, and block floating point.

    MX    32 elements of E4M3, E5M2, E3M2, E2M3, E2M1 or INT8 (Microscaling Formats 1.0, table 1)
    BFP   B elements of fixed point

The scale is the least under which no element saturates. OCP's own, by the exponent of the largest element alone, cuts
that element by up to an eighth: `floor` has it. Scales are those of E8M0 (section 5.4.1), 2^-127 to 2^127.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..jit import Floats, Kernels
from ..number import BlockGrid, FloatGrid, Rounding
from .element import bits_of, limits_of
from .grid import Counts, arrays
from .philox import Words
from .source import Draws, sources

block_loops = Kernels("quantise.block_loops")


class Blocks(NamedTuple):
    """Blocks, as kernels take them: elements, those of a line, and from one to the next; how the scale is chosen.

    `largest` is what fp32 holds of the last scale: its bits.
    """

    size: int
    length: int
    apart: int
    rises: bool
    largest: int


def on_blocks(
    values: Floats,
    grid: BlockGrid,
    axis: int,
    rounding: Rounding = Rounding.EVEN,
    words: Words | Draws | None = None,
    *,
    out: Floats | None = None,
    counts: Counts | None = None,
) -> Floats:
    """Return numbers rounded to blocks along an axis, from its beginning; the last block may be shorter.

    A block with an infinity or NaN becomes NaN, and counts nothing.

    Args:
        values: any shape, C-contiguous.
        grid: the format.
        axis: along which elements share a scale.
        rounding, words, out, counts: as `on_grid` takes them.

    Raises:
        ValueError: random numbers are missing, or arguments contradict each other.
    """
    values, results, counted = arrays(values, out, counts)
    if not values.size:
        return results
    length, apart = values.shape[axis], math.prod(values.shape[axis:][1:])
    blocks = Blocks(grid.size, length, apart, not grid.floor, _most_held(grid.element))
    drawn = sources(values, rounding, words)
    bits, rounded = values.reshape(-1).view(np.uint32), results.reshape(-1).view(np.uint32)
    in_lines = apart == 1 and drawn[0].row % length == 0
    round_all = block_loops.round_lines if in_lines else block_loops.round_columns
    round_all(bits, rounded, values is results, blocks, limits_of(grid.element, rounding), *drawn, counted)
    return results


def _most_held(element: FloatGrid) -> int:
    return bits_of((2 - 2.0**-element.fraction_bits) * 2.0**127)
