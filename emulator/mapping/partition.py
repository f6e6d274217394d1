"""The partition: layers cut by multiply-accumulates into shares, one for each device (FPDeep, sections 3.2 and 4.1).

All layers' channels stand in one row, each with its multiply-accumulates; the row is cut at channel boundaries so that
every device's share is as near as may be to what its board can do. So a device may hold slices of several layers, and
a layer may span many devices.
"""

from __future__ import annotations

import bisect
import dataclasses
import enum
import itertools
from collections.abc import Sequence

from ..boards import Cluster
from ..errors import InputError
from ..layers import Layer, Network

ICP_FROM_CHANNELS = 16
"""Layers with fewer input channels are cut by output channels: "OCP is only used when the number of the input channel
is too small to provide sufficient parallelism" (FPDeep, section 4.1)."""


class Cut(enum.Enum):
    """How a layer is cut: by input channels (ICP) or output channels (OCP); FPDeep, Fig. 7."""

    ICP = "ICP"
    OCP = "OCP"


def cut_of(layer: Layer) -> Cut:
    """ICP by default, OCP where input channels are few."""
    few = layer.input[0] < ICP_FROM_CHANNELS and layer.channels > layer.input[0]
    return Cut.OCP if few else Cut.ICP


def cut_channels(layer: Layer) -> int:
    """The number of channels along which the layer is cut."""
    return layer.channels if cut_of(layer) is Cut.OCP else layer.input[0]


@dataclasses.dataclass(frozen=True)
class Slice:
    """Channels begin … end-1 of a layer on one device: input channels under ICP, output channels under OCP."""

    layer: Layer
    begin: int
    end: int

    @property
    def cut(self) -> Cut:
        """How the layer is cut."""
        return cut_of(self.layer)

    @property
    def is_first(self) -> bool:
        """Whether the layer begins on this device."""
        return self.begin == 0

    @property
    def is_last(self) -> bool:
        """Whether the layer ends on this device, which then holds complete outputs and applies the SFU."""
        return self.end == cut_channels(self.layer)

    @property
    def in_channels(self) -> range:
        """The input channels that this slice convolves."""
        return range(self.begin, self.end) if self.cut is Cut.ICP else range(self.layer.input[0])

    @property
    def out_channels(self) -> range:
        """The output channels to which this slice contributes."""
        return range(self.layer.channels) if self.cut is Cut.ICP else range(self.begin, self.end)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one sample's forward propagation in this slice."""
        return self.layer.macs // cut_channels(self.layer) * (self.end - self.begin)

    def __str__(self) -> str:
        return f"{self.layer.name}[{self.begin}:{self.end}] {self.cut.value}"


@dataclasses.dataclass(frozen=True)
class Mapping:
    """For each device of the chain its slices, in the order of the layers."""

    network: Network
    devices: tuple[tuple[Slice, ...], ...]

    @property
    def imbalance(self) -> float:
        """Equation (5) of FPDeep: the sum over devices of (work - least work) / least work."""
        work = [sum(part.macs for part in slices) for slices in self.devices]
        return sum((w - min(work)) / min(work) for w in work)


def partition(network: Network, cluster: Cluster, devices: int) -> Mapping:
    """Cut `network` over `devices` boards in proportion to what each board can do (multipliers times clock).

    Raises:
        InputError: zero devices, or more than there are channels to hand out.
    """
    units = [cut_channels(layer) for layer in network.layers]
    total = sum(units)
    if not 1 <= devices <= total:
        raise InputError(
            f"`devices` = {devices}: must be 1 to {total}, for {network.name} has {total} channels to cut"
            " and each device needs one"
        )
    per_channel = [layer.macs // count for layer, count in zip(network.layers, units, strict=True)]
    channels = (macs for macs, count in zip(per_channel, units, strict=True) for _ in range(count))
    edges = list(itertools.accumulate(channels, initial=0))
    capacity = [cluster.board(d).dsp / cluster.board(d).period_ps for d in range(devices)]
    ends = _cut(edges, list(itertools.accumulate(capacity)))
    first = list(itertools.accumulate(units, initial=0))
    slices = []
    for begin, end in itertools.pairwise([0, *ends]):
        held = []
        for layer, low, count in zip(network.layers, first, units, strict=False):
            lower, upper = max(begin, low), min(end, low + count)
            if lower < upper:
                held.append(Slice(layer, lower - low, upper - low))
        slices.append(tuple(held))
    return Mapping(network, tuple(slices))


def _cut(edges: Sequence[int], capacity: Sequence[float]) -> list[int]:
    """The edge at which each share ends: the nearest to its due, but one channel a device at the least."""
    last, devices = len(edges) - 1, len(capacity)
    ends: list[int] = []
    for device, upto in enumerate(capacity):
        due = edges[-1] * upto / capacity[-1]
        right = bisect.bisect_left(edges, due)
        nearest = right if right == 0 or edges[min(right, last)] - due <= due - edges[right - 1] else right - 1
        lowest = (ends[-1] if ends else 0) + 1
        highest = last - (devices - 1 - device)
        ends.append(min(max(nearest, lowest), highest))
    ends[-1] = last
    return ends
