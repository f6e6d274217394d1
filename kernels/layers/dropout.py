"""Dropout masks that depend only on the seed, layer, sample and element.

Each element has a number from a counter-based generator (splitmix64), so that the same sample gets the same mask on any
device, in any micro-batch, in any order.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..jit import Floats, compiled, target


def mask(out: Floats, *, rate: float, seed: int, layer: int, samples: NDArray[np.int64]) -> None:
    """Fill `out` (n, rows, columns, channels): 0 with probability `rate`, else 1 / (1 - rate).

    `samples` (n,) holds the number of each sample, counted over the whole training. Raise ValueError unless there is
    one number for each sample and 0 <= `rate` < 1.
    """
    if not 0 <= rate < 1:
        raise ValueError(f"the rate must be at least 0 and less than 1, not {rate}")
    if samples.shape != out.shape[:1]:
        raise ValueError(f"one sample number for each of {len(out)} samples is needed, not {samples.shape}")
    numbers = np.require(samples, dtype=np.int64, requirements=["C", "A", "W"])
    _mask(*target(out, "out"), numbers, float(rate), seed, layer)


def warm() -> None:
    """Compile all kernels: call each once on tiny arrays, as training calls it."""
    mask(np.empty((1, 3, 3, 2), np.float32), rate=0.5, seed=0, layer=0, samples=np.zeros(1, np.int64))


@compiled
def _mix(z: Any) -> Any:
    """Apply the finaliser of splitmix64: every bit of z changes each bit of the result with probability 1/2."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@compiled
def _mask(out: Any, extent: Any, samples: Any, rate: Any, seed: Any, layer: Any) -> None:
    """Fill the mask; the elements of a sample count channel by channel, row by row within each."""
    n, rows, columns, channels, pitch = extent
    step = np.uint64(0x9E3779B97F4A7C15)
    kept = np.float32(1 / (1 - rate))
    limit = np.uint64(rate * 2.0**53)
    stream = _mix(_mix(np.uint64(seed) + step) + np.uint64(layer) + step)
    across = np.uint64(rows * columns) * step  # from one channel to the next
    for sample in range(n):
        key = _mix(stream + np.uint64(samples[sample]) + step)
        for pixel in range(rows * columns):
            to, place = np.uint64((sample * rows * columns + pixel) * pitch), key + np.uint64(pixel + 1) * step
            for c in range(np.uint64(channels)):
                number = _mix(place) >> np.uint64(11)
                out[to + c] = np.float32(0) if number < limit else kept
                place += across
