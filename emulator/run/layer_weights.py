"""The weights of all layers, gathered from the devices that hold slices of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from ...launch import Ranks
from ..device import SliceNumerics, named_weights
from ..mapping import Cut, Slice
from ..network import Network
from .record import Weights


def gathered_weights(ranks: Ranks, network: Network, slices: Iterable[SliceNumerics]) -> Weights:
    """Return all layers' weights (oc, ic, kh, kw), and the arrays of their SFUs, on rank 0, from all ranks' slices."""
    held = [(of.part, of.weights(), of.arrays()) for of in slices]
    gathered: Weights = {}
    for rank_held in ranks.gather(held):
        for part, weight, others in rank_held:
            _place(gathered, part, weight, others)
    for layer in network.layers:
        if layer.operation.recurs and layer.name in gathered:
            gathered[layer.name].update(named_weights(layer, gathered[layer.name].pop("weight")))
    return gathered


def _place(
    gathered: Weights, part: Slice, weight: NDArray[np.float32], others: Mapping[str, NDArray[np.float32]]
) -> None:
    layer = gathered.setdefault(part.layer.name, {"weight": np.empty(part.layer.weight_shape, np.float32)})
    if part.cut is Cut.ICP:
        layer["weight"][:, part.begin : part.end] = weight
    else:
        layer["weight"][part.begin : part.end] = weight
    layer.update({name: array.copy() for name, array in others.items()})  # these go on being trained
