"""A device's gradients in one row, as replicas exchange them: of its slices, and of the parameters that it stores.

Parameters that its slices use and other devices store count where they are stored.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .balancing import BalancedParameters, blocks_of, channel_bytes
from .slices import Slice
from .traffic import VALUE_BYTES


def kept_channels(part: Slice, device: int, blocks: Sequence[BalancedParameters]) -> NDArray[np.bool_]:
    """Return a mask of the slice's cut channels that the device stores itself."""
    kept = np.ones(part.channels, np.bool_)
    for _, block in blocks_of(blocks, part, device):
        kept[block.begin - part.begin : block.end - part.begin] = False
    return kept


def gradient_values(device: int, slices: Sequence[Slice], blocks: Sequence[BalancedParameters]) -> int:
    """Return the number of gradients that a device exchanges with its counterparts in other replicas."""
    count = sum(block.values for block in blocks if block.store_device == device)
    for part in slices:
        weights = int(kept_channels(part, device, blocks).sum()) * channel_bytes(part) // VALUE_BYTES
        count += weights + part.is_last * (part.layer.parameters - part.layer.weights)
    return count
