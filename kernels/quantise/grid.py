"""Rounding onto the grid of a narrow format within fp32, number by number."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..jit import Floats, Kernels, address_of, dense, in_place, same_shape
from ..number import FloatGrid, Rounding
from .element import limits_of
from .philox import Words
from .source import Draws, sources

Counts = NDArray[np.int64]

loops = Kernels("quantise.loops")


def on_grid(
    values: Floats,
    grid: FloatGrid,
    rounding: Rounding = Rounding.EVEN,
    words: Words | Draws | None = None,
    *,
    out: Floats | None = None,
    counts: Counts | None = None,
) -> Floats:
    """Return numbers rounded onto a grid; NaN stays NaN.

    Args:
        values: any shape, C-contiguous.
        grid: the format.
        rounding: how. By chance, a number goes up where its word is below the 32 bits that are cut off, as a fraction.
        words: random numbers, one for each value, in the order of memory, or the draws of a stream; for stochastic
            rounding alone.
        out: where the results go, C-contiguous and of the same shape; may be `values`.
        counts: two numbers, to which are added: finite values that went beyond the largest one, and values that are not
            zero, but became so.

    Raises:
        ValueError: random numbers are missing, or arguments contradict each other.
    """
    values, results, counted = arrays(values, out, counts)
    bits, rounded = values.reshape(-1).view(np.uint32), results.reshape(-1).view(np.uint32)
    drawn = sources(values, rounding, words)
    loops.round_rows(bits, rounded, values is results, limits_of(grid, rounding), *drawn, counted)
    return results


def arrays(values: Floats, out: Floats | None, counts: Counts | None) -> tuple[Floats, Floats, Counts]:
    """Return the arrays of a rounding: values, results and counts.

    Raises:
        TypeError: one is of another type.
        ValueError: one has another shape or layout.
    """
    values = dense(values, "values")
    results = np.empty(values.shape, np.float32) if out is None else in_place(out, "out")
    same_shape(values, results, "values and out")
    if address_of(results) == address_of(values):
        values = results
    counted = np.zeros(2, np.int64) if counts is None else counts
    if counted.shape != (2,) or counted.dtype != np.int64:
        raise ValueError(f"counts must be two numbers of int64, not {counted.dtype} {counted.shape}")
    return values, results, counted
