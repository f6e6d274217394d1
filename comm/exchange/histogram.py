"""Distribution of gradients: counts by sign and power of two (INCEPTIONN, Fig. 5)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LEAST_EXPONENT = -40
"""Exponent of the smallest bin, in which smaller values are counted, too."""

BINS = 2 - LEAST_EXPONENT
"""Number of bins: zeros, then values from 2^e to below 2^(e+1) for each e from -40 to -1, then those of 1 and more."""


def histogram(values: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the counts (sign, bin) of values: first positive ones, which include zeros, then negative ones."""
    _, exponents = np.frexp(values)
    bins = np.clip(exponents - LEAST_EXPONENT, 1, BINS - 1)
    bins[values == 0] = 0
    signs = (values < 0).astype(np.int64)
    return np.bincount(signs * BINS + bins, minlength=2 * BINS).reshape(2, BINS)
