"""Dropout masks that depend on the seed, layer, sample and element alone.

Each element has a number from a counter-based generator (splitmix64), so that the same sample gets
the same mask on any device, in any micro-batch, in any order.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from .arrays import Floats


def mask(shape: tuple[int, int, int, int], *, rate: float, seed: int, layer: int, samples: NDArray[np.int64]) -> Floats:
    """Return a mask of shape (n, c, h, w): 0 with probability `rate`, else 1 / (1 - rate).

    `samples` (n,) holds the number of each sample, counted over the whole training. Raise ValueError
    unless 0 <= rate < 1 and there is one number for each sample.
    """
    if not 0 <= rate < 1:
        raise ValueError(f"the rate must be at least 0 and less than 1, not {rate}")
    if samples.shape != (shape[0],):
        raise ValueError(f"one sample number for each of {shape[0]} samples is needed, not {samples.shape}")
    numbers = np.require(samples, dtype=np.int64, requirements=["C", "A", "W"])
    elements = shape[1] * shape[2] * shape[3]
    return _mask(numbers, elements, float(rate), seed, layer).reshape(shape)


@njit(cache=True, nogil=True)
def _mix(z: Any) -> Any:
    """The finaliser of splitmix64: every bit of z changes each bit of the result with probability 1/2."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(cache=True, nogil=True)
def _mask(samples: Any, elements: Any, rate: Any, seed: Any, layer: Any) -> Any:
    step = np.uint64(0x9E3779B97F4A7C15)
    kept = np.float32(1 / (1 - rate))
    limit = np.uint64(rate * 2.0**53)
    out = np.empty((samples.size, elements), np.float32)
    stream = _mix(_mix(np.uint64(seed) + step) + np.uint64(layer) + step)
    for n in range(samples.size):
        key = _mix(stream + np.uint64(samples[n]) + step)
        for i in range(elements):
            number = _mix(key + np.uint64(i + 1) * step) >> np.uint64(11)
            out[n, i] = np.float32(0) if number < limit else kept
    return out
