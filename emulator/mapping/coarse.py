"""Whole layers: the coarse phase, which gives them to whole boards (FPDeep, section 3.2), and
stages of whole layers.

"The coarse-grained graph is partitioned into multiple (number of FPGAs) sub-graphs with similar
sizes of workloads." A group is either some consecutive layers on one device, or one layer on some
consecutive devices, which share it in proportion to their capacities; so no board works on a part
of one layer and on another layer. A group's share is its work over its capacity. Whether all shares
can be within a bound is found by dynamic programming over (layers placed, devices used), and the
least such bound by bisection.

Stages of whole layers have the cut between layers whose slowest stage is as fast as possible, found
exactly.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..cluster import Cluster
from ..common import InputError, plural
from ..network import Network
from .slices import Mapping, Slice, cut_channels


@dataclasses.dataclass(frozen=True)
class Group:
    """Consecutive layers on consecutive devices: several layers on one device, or one layer on one
    or more devices.
    """

    layers: range
    devices: range


def coarse(work: Sequence[float], capacity: Sequence[float]) -> tuple[Group, ...]:
    """Return the groups whose largest share is least; every layer and every device is in one.

    Args:
        work: work of each layer, in any unit.
        capacity: work that each device can do in any unit of time.
    """
    chart = _Chart(work, capacity)
    # The least bound lies between the mean share and all work on the slowest device; 1e-9 keeps
    # rounding from leaving it out.
    low = (1 - 1e-9) * float(chart.work[-1] / chart.capacity[-1])
    high = (1 + 1e-9) * float(chart.work[-1] / min(capacity))
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        if chart.reach(middle)[-1, -1]:
            high = middle
        else:
            low = middle
    return chart.groups(high)


def coarse_shares(work: Sequence[float], capacity: Sequence[float]) -> list[float]:
    """Return each device's time for its part in the coarse partition: work over capacity."""
    shares: list[float] = []
    for group in coarse(work, capacity):
        of_group = sum(work[layer] for layer in group.layers)
        share = of_group / sum(capacity[device] for device in group.devices)
        shares += [share] * len(group.devices)
    return shares


class _Chart:
    """The work of all layers, and the capacity of all devices, before each boundary."""

    def __init__(self, work: Sequence[float], capacity: Sequence[float]) -> None:
        self.work = np.array([*itertools.accumulate(work, initial=0.0)])
        self.capacity = np.array([*itertools.accumulate(capacity, initial=0.0)])
        self.each = np.array(capacity)

    def reach(self, bound: float) -> NDArray[np.bool_]:
        """Return [layers placed, devices used]: whether these layers can fill these devices, no
        share above `bound`.
        """
        layers, devices = len(self.work), len(self.capacity)
        reached = np.zeros((layers, devices), np.bool_)
        reached[0, 0] = True
        room = bound * self.each
        placed = np.full(
            devices, -math.inf
        )  # most work placed on each number of devices; the least then follows
        placed[0] = 0
        for layer in range(1, layers):
            # On one device: the layers after the furthest boundary that the devices before can
            # reach.
            reached[layer, 1:] = self.work[layer] - placed[:-1] <= room
            # Alone on several: begun at the earliest device, it may end wherever its share is
            # within the bound.
            if reached[layer - 1].any():
                begin = self.capacity[reached[layer - 1].argmax()]
                reached[layer] |= (
                    bound * (self.capacity - begin) >= self.work[layer] - self.work[layer - 1]
                )
            placed[reached[layer]] = self.work[layer]
        return reached

    def groups(self, bound: float) -> tuple[Group, ...]:
        """Return groups within `bound`, each beginning as near as possible to where it would with
        equal shares.
        """
        reached = self.reach(bound)
        layer, device = len(self.work) - 1, len(self.capacity) - 1
        groups = []
        while layer:
            on_one = self.work[layer] - self.work[:layer] <= bound * self.each[device - 1]
            alone = self.work[layer] - self.work[layer - 1] <= bound * (
                self.capacity[device] - self.capacity[:device]
            )
            begins = [
                (int(first), device - 1)
                for first in np.flatnonzero(on_one & reached[:layer, device - 1])
            ]
            begins += [
                (layer - 1, int(first))
                for first in np.flatnonzero(alone & reached[layer - 1, :device])
            ]
            from_layer, from_device = min(
                begins, key=lambda begin: self._off_due(begin, (layer, device))
            )
            groups.append(Group(range(from_layer, layer), range(from_device, device)))
            layer, device = from_layer, from_device
        return tuple(reversed(groups))

    def _off_due(self, begin: tuple[int, int], end: tuple[int, int]) -> float:
        return abs(
            float(
                self.work[begin[0]] / self.work[end[0]]
                - self.capacity[begin[1]] / self.capacity[end[1]]
            )
        )


StageCost = Callable[[int, int, int], float]
"""The time of layers begin … end-1 on a device: a function of (device, begin, end)."""


class LayerCut(NamedTuple):
    """A cut between layers: for each device the layer behind its last one, and the cost of the
    slowest stage.
    """

    ends: tuple[int, ...]
    slowest: float


def cut_layers(layers: int, devices: int, cost: StageCost) -> LayerCut:
    """Return the cut between layers whose largest cost is as small as possible.

    Each device gets at least one layer. Of cuts that are equally good, the one with the earliest
    ends is returned. All O(devices x layers^2) stages are tried, so `cost` may be any function.
    """

    @functools.cache
    def best(device: int, begin: int) -> tuple[float, int]:
        """Return the least largest cost of layers from `begin` on, on devices from `device` on; and
        the first end.
        """
        if device == devices - 1:
            return cost(device, begin, layers), layers
        # Each device behind needs a layer. Pairs compare by cost, then by end: the earliest wins.
        least = (math.inf, begin + 1)
        for end in range(begin + 1, layers - (devices - device - 1) + 1):
            least = min(least, (max(cost(device, begin, end), best(device + 1, end)[0]), end))
        return least

    ends = [0]
    for device in range(devices):
        ends.append(best(device, ends[-1])[1])
    return LayerCut(tuple(ends[1:]), best(0, 0)[0])


def partition_layers(
    network: Network, cluster: Cluster, devices: int, cost: StageCost | None = None
) -> Mapping:
    """Cut a network into stages of whole layers; without `cost`, by multiply-accumulates and
    multipliers alone.

    Raises:
        InputError: there are more devices than layers.
    """
    layers = network.layers
    if not 1 <= devices <= len(layers):
        raise InputError(
            f"`devices` = {devices}: must be 1 to {len(layers)} with `stages` = 'layers':"
            f" {network.name} has {plural(len(layers), 'layer')}, and each stage needs one"
        )

    def work(device: int, begin: int, end: int) -> float:
        return sum(layer.macs for layer in layers[begin:end]) / cluster.board(device).capacity

    ends = cut_layers(len(layers), devices, cost or work).ends
    return Mapping(
        network, tuple(whole_layers(network, b, e) for b, e in zip([0, *ends], ends, strict=False))
    )


def whole_layers(network: Network, begin: int, end: int) -> tuple[Slice, ...]:
    """Return whole layers as slices."""
    return tuple(Slice(layer, 0, cut_channels(layer)) for layer in network.layers[begin:end])
