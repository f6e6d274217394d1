"""How gradients are distributed: counts by sign and power of two (INCEPTIONN, Fig. 5)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LEAST_EXPONENT = -40
"""Smaller values are counted with 2^-40."""

BINS = 2 - LEAST_EXPONENT
"""Zeros, then values from 2^e to below 2^(e+1) for each e from -40 to -1, then those of 1 and more."""


def histogram(values: NDArray[np.float32]) -> NDArray[np.int64]:
    """Counts (sign, bin) of values: positive ones first; zeros are counted there."""
    _, exponents = np.frexp(values)
    bins = np.clip(exponents - LEAST_EXPONENT, 1, BINS - 1)
    bins[values == 0] = 0
    signs = (values < 0).astype(np.int64)
    return np.bincount(signs * BINS + bins, minlength=2 * BINS).reshape(2, BINS)
