"""Slices: how a layer is cut by channels, and which device holds which piece (FPDeep, sections 3.3 and 4.1)."""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Sequence

from ..network.layers import Layer, Network

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

    @functools.cached_property
    def cut(self) -> Cut:
        """How the layer is cut."""
        return cut_of(self.layer)

    @property
    def is_first(self) -> bool:
        """Whether the layer begins on this device."""
        return self.begin == 0

    @functools.cached_property
    def is_last(self) -> bool:
        """Whether the layer ends on this device, which then holds complete outputs and applies the SFU."""
        return self.end == cut_channels(self.layer)

    @functools.cached_property
    def in_channels(self) -> range:
        """The input channels that this slice convolves."""
        return range(self.begin, self.end) if self.cut is Cut.ICP else range(self.layer.input[0])

    @functools.cached_property
    def out_channels(self) -> range:
        """The output channels to which this slice contributes."""
        return range(self.layer.channels) if self.cut is Cut.ICP else range(self.begin, self.end)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one sample's forward propagation in this slice."""
        return self.layer.macs // cut_channels(self.layer) * (self.end - self.begin)

    def __str__(self) -> str:
        return f"{self.layer.name}[{self.begin}:{self.end}] {self.cut.value}"


def imbalance(shares: Sequence[float]) -> float:
    """V of FPDeep's equation (5): the sum of (share - least share) / least share; shares are work over capacity."""
    least = min(shares)
    return sum((share - least) / least for share in shares)


@dataclasses.dataclass(frozen=True)
class Balance:
    """How even a partition is: the slowest engine's time for a sample, proven the least of all cuts at channels.

    `perfect_ps` is what no cut of any kind can beat: all work spread evenly over all multipliers. `coarse` and `fine`
    are V of FPDeep's equation (5) after the two phases, over the devices that hold convolutions (over all, where fully
    connected layers have no devices of their own).
    """

    slowest_ps: int
    perfect_ps: float
    coarse: float
    fine: float

    @property
    def gap(self) -> float:
        """By how much the slowest engine is slower than perfect balance; 0.01 is 1 %."""
        return self.slowest_ps / self.perfect_ps - 1


@dataclasses.dataclass(frozen=True)
class Mapping:
    """For each device of the chain its slices, in the order of the layers.

    `fc_devices` hold nothing but fully connected layers, whose parameters are too many for on-chip memory.
    """

    network: Network
    devices: tuple[tuple[Slice, ...], ...]
    fc_devices: range = range(0)
    balance: Balance | None = None
