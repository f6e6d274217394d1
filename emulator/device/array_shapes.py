"""The arrays of a layer: those of its weights, and those of its SFU."""

from __future__ import annotations

import numpy as np

from ...kernels import Arena
from ..network import Layer
from .recurrent_weights import named_weights
from .sfu import Sfu

Sizes = tuple[int, ...]


def array_shapes(layer: Layer) -> dict[str, Sizes]:
    """Return the shapes of a layer's arrays, by the names that results files have."""
    others = {name: of.newest.shape for name, of in Sfu(layer, 0, Arena()).held.items()}
    if not layer.operation.recurs:
        return {"weight": layer.weight_shape, **others}
    weights = named_weights(layer, np.empty(layer.weight_shape, np.float32))
    return {**{name: array.shape for name, array in weights.items()}, **others}
