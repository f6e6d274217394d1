"""A network as a pipeline of GPUs sees it, a chain of layers, and PipeDream's cuts of it.

The cuts are exact: no other cut has a faster slowest stage or link.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...emulator.mapping import Slice, cut_channels
from ...emulator.network import load_network
from ...emulator.profile import PartNeeds, boundary_bytes
from ...kernels.number import FP32


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
        return FP32.bytes_of(self.parameters)


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


class Replicated(NamedTuple):
    """A stage of PipeDream's: layers begin … end-1 on several devices that share its batches."""

    begin: int
    end: int
    devices: int


def pipedream_stages(
    layers: Sequence[ChainLayer], devices: int, stage: Callable[[int, int, int], float], links: Sequence[float]
) -> tuple[Replicated, ...]:
    """Return PipeDream's partition, by its dynamic programme over computation and communication; memory has no part.

    Args:
        layers: the chain.
        devices: number of devices.
        stage: the time of layers begin … end-1 for a batch, shared by a number of devices with their all-reduce.
        links: the time of features and errors across a cut behind each layer.
    """

    @functools.cache
    def best(end: int, count: int) -> tuple[float, tuple[Replicated, ...]]:
        fastest: tuple[float, tuple[Replicated, ...]] = stage(0, end, count), (Replicated(0, end, count),)
        for cut in range(1, end):
            for last in range(1, count):
                time, before = best(cut, count - last)
                slowest = max(time, links[cut - 1], stage(cut, end, last))
                if slowest < fastest[0] and not math.isclose(slowest, fastest[0]):
                    fastest = slowest, (*before, Replicated(cut, end, last))
        return fastest

    return best(len(layers), devices)[1]


def straight_stages(layers: int, devices: int, stage: Callable[[int, int], float]) -> tuple[int, ...]:
    """Return the ends of PipeDream's stages, by time alone, where none is replicated.

    As above, the first stages are as fast as they can be, whatever the last one takes; of equal ones, they begin as
    early as possible. So the cut may be another one than that of `mapping.cut_layers`, which is as fast.

    Args:
        layers: number of layers.
        devices: number of devices, each of which has at least one layer.
        stage: the time of layers begin … end-1.
    """
    best: dict[int, tuple[float, tuple[int, ...]]] = {end: (stage(0, end), ()) for end in range(1, layers + 1)}
    for device in range(1, devices):
        best = {
            end: min((max(best[cut][0], stage(cut, end)), (*best[cut][1], cut)) for cut in range(device, end))
            for end in range(device + 1, layers + 1)
        }
    return (*best[layers][1], layers)
