"""The coarse phase: whole layers to whole boards (FPDeep, section 3.2).

"The coarse-grained graph is partitioned into multiple (number of FPGAs) sub-graphs with similar sizes of workloads." A
group is either some consecutive layers on one device, or one layer on some consecutive devices, which share it in
proportion to their capacities; so no board works on a part of one layer and on another layer. A group's share is its
work over its capacity. Whether all shares can be within a bound is found by dynamic programming over (layers placed,
devices used), and the least such bound by bisection.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


@dataclasses.dataclass(frozen=True)
class Group:
    """Consecutive layers on consecutive devices: several layers on one device, or one layer on one or more devices."""

    layers: range
    devices: range


def coarse(work: Sequence[float], capacity: Sequence[float]) -> tuple[Group, ...]:
    """Return the groups whose largest share is least; every layer and every device is in one.

    Args:
        work: work of each layer, in any unit.
        capacity: work that each device can do in any unit of time.
    """
    chart = _Chart(work, capacity)
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
    return [
        sum(work[layer] for layer in group.layers) / sum(capacity[each] for each in group.devices)
        for group in coarse(work, capacity)
        for _ in group.devices
    ]


class _Chart:
    """The work of all layers, and the capacity of all devices, before each boundary."""

    def __init__(self, work: Sequence[float], capacity: Sequence[float]) -> None:
        self.work = np.array([*itertools.accumulate(work, initial=0.0)])
        self.capacity = np.array([*itertools.accumulate(capacity, initial=0.0)])
        self.each = np.array(capacity)

    def reach(self, bound: float) -> NDArray[np.bool_]:
        """Return [layers placed, devices used]: whether these layers can fill these devices, no share above `bound`."""
        layers, devices = len(self.work), len(self.capacity)
        reached = np.zeros((layers, devices), np.bool_)
        reached[0, 0] = True
        room = bound * self.each
        placed = np.full(devices, -math.inf)  # most work placed on each number of devices; the least then follows
        placed[0] = 0
        for layer in range(1, layers):
            # On one device: the layers after the furthest boundary that the devices before can reach.
            reached[layer, 1:] = self.work[layer] - placed[:-1] <= room
            # Alone on several: begun at the earliest device, it may end wherever its share is within the bound.
            if reached[layer - 1].any():
                begin = self.capacity[reached[layer - 1].argmax()]
                reached[layer] |= bound * (self.capacity - begin) >= self.work[layer] - self.work[layer - 1]
            placed[reached[layer]] = self.work[layer]
        return reached

    def groups(self, bound: float) -> tuple[Group, ...]:
        """Return groups within `bound`, each beginning as near as possible to where it would with equal shares."""
        reached = self.reach(bound)
        layer, device = len(self.work) - 1, len(self.capacity) - 1
        groups = []
        while layer:
            on_one = self.work[layer] - self.work[:layer] <= bound * self.each[device - 1]
            alone = self.work[layer] - self.work[layer - 1] <= bound * (self.capacity[device] - self.capacity[:device])
            begins = [(int(first), device - 1) for first in np.flatnonzero(on_one & reached[:layer, device - 1])]
            begins += [(layer - 1, int(first)) for first in np.flatnonzero(alone & reached[layer - 1, :device])]
            from_layer, from_device = min(begins, key=lambda begin: self._off_due(begin, (layer, device)))
            groups.append(Group(range(from_layer, layer), range(from_device, device)))
            layer, device = from_layer, from_device
        return tuple(reversed(groups))

    def _off_due(self, begin: tuple[int, int], end: tuple[int, int]) -> float:
        return abs(float(self.work[begin[0]] / self.work[end[0]] - self.capacity[begin[1]] / self.capacity[end[1]]))
