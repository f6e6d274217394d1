"""A network as a pipeline of GPUs sees it: a chain of layers with parameters, work, and what crosses a cut."""

from __future__ import annotations

import dataclasses
import functools

from ....mapping import VALUE_BYTES, Slice, cut_channels
from ....network import load_network
from ....profile import PartNeeds, boundary_bytes


@dataclasses.dataclass(frozen=True)
class ChainLayer:
    """A layer of a chain, for one sample: `macs` of FP, `sent_bytes` across a cut behind it.

    `kept_bytes` are the features kept from F to B. Where they are not known, they count as `lstm_layers`.
    """

    name: str
    parameters: int
    macs: int
    sent_bytes: int
    kept_bytes: int = 0
    lstm_layers: int = 0

    @property
    def parameter_bytes(self) -> int:
        """Bytes of the weights, or of their gradients."""
        return VALUE_BYTES * self.parameters


@functools.cache
def zoo_layers(name: str) -> tuple[ChainLayer, ...]:
    """Return a network of the zoo as a chain; shortcuts cross every cut that they span."""
    network = load_network(name)
    return tuple(
        ChainLayer(
            layer.name,
            layer.parameters,
            layer.macs,
            boundary_bytes(network, layer.index),
            PartNeeds.of(Slice(layer, 0, cut_channels(layer))).feature_bytes,
        )
        for layer in network.layers
    )
