"""Hadamard's transform of blocks, by which what is large in one place is shared out among all
(Pretraining Large Language Models with NVFP4, 2025, section 4.2; QuaRot, Ashkboos et al., 2024).

Both operands of a sum are transformed by the same orthogonal matrix, so but for roundings the sum
stays as it is: (H a) · (H b) = a · b. Signs by chance come first. Sums are in fp32, in the order of
butterflies, of neighbours first:

    distance 1             2                       4
    a + b, a - b   |  a + c, b + d, a - c, b - d   |  ...
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

HADAMARD_SIZES = 4, 16
"""Numbers of a block: their root is a power of two, so that dividing by it is exact."""


def transform(lines: NDArray[np.float32], signs: NDArray[np.float32]) -> None:
    """Transform whole blocks of lines (…, length), as long as there are signs (1 or -1), in place;
    what is left behind the last one stays.
    """
    size, length = len(signs), lines.shape[-1]
    whole = length // size * size
    blocks = lines[..., :whole].reshape(*lines.shape[:-1], whole // size, size) * signs
    distance = 1
    while distance < size:
        pairs = blocks.reshape(*blocks.shape[:-1], size // (2 * distance), 2, distance)
        one, other = pairs[..., 0, :], pairs[..., 1, :]
        blocks = np.stack([one + other, one - other], axis=-2).reshape(blocks.shape)
        distance *= 2
    blocks *= np.float32(1 / math.isqrt(size))
    lines[..., :whole] = blocks.reshape(*lines.shape[:-1], whole)
