"""Terms that are added to scores, by the distance of a query from a key: those that fall with it, by a
slope of each head.

Press, Smith and Lewis, 2022, "Train Short, Test Long: Attention with Linear Biases" (ALiBi).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..jit import Floats
from .attention import distances


def alibi_slopes(heads: int) -> tuple[float, ...]:
    """Return the slopes of the paper's heads: of n, a power of two, 2^(-8 / n), 2^(-16 / n) ..; of
    another number those of the power below, and then every other one of the power above (section 3,
    and the authors' code).
    """
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * head / power) for head in range(1, power + 1)]
    between = (2 ** (-4 * head / power) for head in range(1, 2 * power, 2))
    return *slopes, *(slope for slope, _ in zip(between, range(heads - power), strict=False))


def away(rows: int, keys: int) -> NDArray[np.int64]:
    """Return how many rows before the query a key stands, by the number of a term: negative behind
    it.
    """
    return np.arange(distances(rows, keys)) - (keys - 1)


def sloped(slopes: Sequence[float], rows: int, keys: int) -> Floats:
    """Return the terms (1, heads, distances) of slopes: less a slope for each row between."""
    own = np.array(slopes, np.float32)[:, None]
    return np.ascontiguousarray(-own * np.abs(away(rows, keys)).astype(np.float32))[None]
