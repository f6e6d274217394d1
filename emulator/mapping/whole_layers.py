"""Stages of whole layers: the cut between layers whose slowest stage is as fast as possible, found exactly."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

from ..cluster import Cluster
from ..common import InputError, plural
from ..network import Network
from .slices import Mapping, Slice, cut_channels

StageCost = Callable[[int, int, int], float]
"""The time of layers begin … end-1 on a device: a function of (device, begin, end)."""


class LayerCut(NamedTuple):
    """A cut between layers: for each device the layer behind its last one, and the cost of the slowest stage."""

    ends: tuple[int, ...]
    slowest: float


def cut_layers(layers: int, devices: int, cost: StageCost) -> LayerCut:
    """Return the cut between layers whose largest cost is as small as possible.

    Each device gets at least one layer. Of cuts that are equally good, the one with the earliest ends is returned. All
    O(devices x layers^2) stages are tried, so `cost` may be any function.
    """

    @functools.cache
    def best(device: int, begin: int) -> tuple[float, int]:
        """Return the least largest cost of layers from `begin` on, on devices from `device` on; and the first end."""
        if device == devices - 1:
            return cost(device, begin, layers), layers
        found = (math.inf, begin + 1)
        for end in range(begin + 1, layers - (devices - device - 1) + 1):
            found = min(found, (max(cost(device, begin, end), best(device + 1, end)[0]), end))
        return found

    ends = [0]
    for device in range(devices):
        ends.append(best(device, ends[-1])[1])
    return LayerCut(tuple(ends[1:]), best(0, 0)[0])


def partition_layers(network: Network, cluster: Cluster, devices: int, cost: StageCost | None = None) -> Mapping:
    """Cut a network into stages of whole layers; without `cost`, by multiply-accumulates and multipliers alone.

    Raises:
        InputError: there are more devices than layers.
    """
    layers = network.layers
    if not 1 <= devices <= len(layers):
        raise InputError(
            f"`devices` = {devices}: must be 1 to {len(layers)} with `stages` = 'layers': {network.name} has"
            f" {plural(len(layers), 'layer')}, and each stage needs one"
        )

    def work(device: int, begin: int, end: int) -> float:
        return sum(layer.macs for layer in layers[begin:end]) / cluster.board(device).capacity

    ends = cut_layers(len(layers), devices, cost or work).ends
    return Mapping(network, tuple(whole_layers(network, b, e) for b, e in zip([0, *ends], ends, strict=False)))


def whole_layers(network: Network, begin: int, end: int) -> tuple[Slice, ...]:
    """Return whole layers as slices."""
    return tuple(Slice(layer, 0, cut_channels(layer)) for layer in network.layers[begin:end])
