"""Slices: how a layer is cut by channels, and which device holds which piece (FPDeep, sections 3.3
and 4.1).
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import itertools
import math
from collections.abc import Sequence

from ..network import Layer, Network
from ..number import Precision

ICP_FROM_CHANNELS = 16
"""Layers with fewer input channels are cut by output channels: "OCP is only used when the number of
the input channel is too small to provide sufficient parallelism" (FPDeep, section 4.1)."""


class Cut(enum.Enum):
    """The cut of a layer: by input channels (ICP) or output channels (OCP); FPDeep, Fig. 7."""

    ICP = "ICP"
    OCP = "OCP"


def cut_of(layer: Layer) -> Cut:
    """Return ICP, or OCP where input channels are few, in groups, or embedded; by units, heads or
    logits if any.

    A layer whose operation says so is cut the other way.
    """
    if layer.operation.recurs or layer.vocabulary_parallel:
        return Cut.OCP
    by_outputs = layer.operation.cuts_outputs
    if by_outputs is None:
        by_outputs = layer.input[0] < ICP_FROM_CHANNELS and layer.channels > layer.input[0]
    return Cut.OCP if by_outputs else Cut.ICP


def cut_channels(layer: Layer) -> int:
    """Return the number of channels along which the layer is cut; 1 if it is indivisible."""
    return layer.operation.pieces(layer.output) if cut_of(layer) is Cut.OCP else layer.input[0]


def channels_together(layer: Layer, precision: Precision) -> int:
    """Return how many of the channels along which a layer is cut stay together, counted from 0:
    whole blocks of products that are summed exactly, of errors and states that each slice makes by
    itself, and of a tied table.

    Cut by outputs, a layer without EB sums no products of them; squares of weights stay whole.
    """
    own = precision.of(layer.formats)
    is_summed = layer.has_eb or cut_of(layer) is Cut.ICP or own.square > 0
    sums = layer.has_weights and (own.square > 0 or not layer.operation.looks_up)
    together = own.whole_channels if is_summed and sums else 1
    if layer.vocabulary_parallel:
        together = math.lcm(together, own.errors.block or 1)
    if layer.operation.recurs:  # of a board's own units: states, and errors of gates
        together = math.lcm(together, own.activations.block or 1, own.errors.block or 1)
    if layer.shares_weights and _lie_across(layer, own):
        # The scale of a feature's symbols needs all of them.
        whole = own.has_tensors_of_weights
        together = cut_channels(layer) if whole else math.lcm(together, own.weight_block)
    outputs = layer.channels // layer.operation.groups
    # Of groups that have no whole blocks, each stays whole.
    return together if layer.operation.groups == 1 or not outputs % together else outputs


def _lie_across(layer: Layer, own: Precision) -> bool:
    """Return whether blocks of a tied table lie along the channels in which a layer is cut.

    They are of a feature's symbols, along which a head may be cut; where products are summed in
    blocks, of a symbol's features, as the head sums them, along which embeddings are cut.
    """
    if layer.operation.looks_up:
        return own.dot > 0
    return own.dot == 0 and cut_of(layer) is Cut.OCP


def cut_pieces(layer: Layer, precision: Precision) -> int:
    """Return into how many pieces a layer can be cut."""
    return -(-cut_channels(layer) // channels_together(layer, precision))


def inputs_before(layer: Layer, boundary: int) -> int:
    """Return the number of input channels that only slices before a boundary need.

    Under ICP each slice has its own; under OCP all need all of their groups, so a group goes on
    until its last output.
    """
    if cut_of(layer) is Cut.ICP:
        return boundary
    groups, pieces = layer.operation.groups, layer.operation.pieces(layer.output)
    return boundary * groups // pieces * (layer.input[0] // groups)


@dataclasses.dataclass(frozen=True)
class Slice:
    """Channels begin … end-1 of a layer on one device: input channels under ICP, output channels or
    heads under OCP.
    """

    layer: Layer
    begin: int
    end: int

    @functools.cached_property
    def cut(self) -> Cut:
        """The layer's cut."""
        return cut_of(self.layer)

    @property
    def channels(self) -> int:
        """Number of the slice's channels along which the layer is cut."""
        return self.end - self.begin

    @property
    def is_first(self) -> bool:
        """Whether the layer begins on this device."""
        return self.begin == 0

    @functools.cached_property
    def is_last(self) -> bool:
        """Whether the layer ends on this device, which then holds complete outputs and applies the
        SFU.
        """
        return self.end == cut_channels(self.layer)

    @functools.cached_property
    def in_channels(self) -> range:
        """The input channels that this slice works on: under OCP, all of the groups of its output
        channels.
        """
        if self.cut is Cut.ICP:
            return range(self.begin, self.end)
        size = self.layer.input[0] // self.layer.operation.groups
        return range(
            inputs_before(self.layer, self.begin), inputs_before(self.layer, self.end - 1) + size
        )

    @property
    def held_inputs(self) -> int:
        """The values of a pixel that Act-RAM holds: its input channels, or one symbol."""
        return 1 if self.layer.operation.looks_up else len(self.in_channels)

    @property
    def weight_inputs(self) -> range:
        """The second index of its weights: its input channels, counted from the first of a
        group.
        """
        return (
            self.in_channels
            if self.cut is Cut.ICP
            else range(self.layer.input[0] // self.layer.operation.groups)
        )

    @property
    def lies_along_outputs(self) -> bool:
        """Whether blocks of its weights lie along output channels, unless its sums need others."""
        return self.cut is Cut.ICP or self.layer.tied is not None

    @property
    def outputs_by_group(self) -> tuple[int, ...]:
        """The number of its output channels in each group that it works on."""
        size = self.layer.channels // self.layer.operation.groups
        outs = self.out_channels
        ends = [outs.start, *range(outs.start // size * size + size, outs.stop, size), outs.stop]
        return tuple(end - begin for begin, end in itertools.pairwise(ends))

    @functools.cached_property
    def out_channels(self) -> range:
        """The output channels to which this slice contributes."""
        if self.cut is Cut.ICP or (self.is_first and self.is_last):
            return range(self.layer.channels)
        size = self.layer.channels // cut_channels(self.layer)
        return range(self.begin * size, self.end * size)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one sample's forward propagation in this slice."""
        return self.layer.macs // cut_channels(self.layer) * self.channels

    @property
    def eb_macs(self) -> int:
        """Multiply-accumulates of one sample's EB in this slice; 0 if it has none."""
        return (
            self.layer.eb_macs // cut_channels(self.layer) * self.channels
            if self.layer.has_eb
            else 0
        )

    @property
    def pg_macs(self) -> int:
        """Multiply-accumulates of one sample's PG in this slice; 0 if it has none."""
        return self.macs if self.layer.has_pg else 0

    @property
    def training_macs(self) -> int:
        """Multiply-accumulates of one sample's FP, EB and PG in this slice."""
        return self.macs + self.eb_macs + self.pg_macs

    @property
    def operations(self) -> int:
        """Operations of one sample's training in this slice; see `Layer`."""
        return self.layer.operations // cut_channels(self.layer) * self.channels

    @functools.cached_property
    def kept_values(self) -> int:
        """Values of a sample that are kept for the backward pass besides its inputs: the slice's
        part, rounded up.
        """
        kept = self.layer.operation.kept_values(self.layer.input)
        if self.layer.vocabulary_parallel:
            kept += math.prod(self.layer.output)
        return -(-kept * self.channels // cut_channels(self.layer))

    @property
    def sfu_channels(self) -> int:
        """Number of complete outputs that its SFU takes: all at the layer's end, or its own logits;
        0 without one.
        """
        if self.layer.vocabulary_parallel:
            return len(self.out_channels)
        return self.layer.channels if self.is_last else 0

    @property
    def sfu_parameters(self) -> int:
        """Number of biases, and of parameters of normalisations, in its SFU."""
        if self.layer.vocabulary_parallel:
            return self.layer.bias * self.sfu_channels
        return self.layer.parameters - self.layer.weights if self.is_last else 0

    def __str__(self) -> str:
        return f"{self.layer.name}[{self.begin}:{self.end}] {self.cut.value}"


def imbalance(shares: Sequence[float]) -> float:
    """Return V of FPDeep's equation (5): the sum of (share - least) / least; shares are work over
    capacity.
    """
    least = min(shares)
    return sum((share - least) / least for share in shares)


@dataclasses.dataclass(frozen=True)
class Balance:
    """The evenness of a partition: times in ps of a sample.

    `slowest_ps` is that of the slowest engine. `server_ps` is that of the slowest of all engines
    and links, and of memory ports if the cut heeds them: proven the least of all cuts at channels.
    `perfect_ps` is the time that no cut of any kind can beat: all work spread evenly over all
    multipliers. `coarse` and `fine` are V of FPDeep's equation (5) after the two phases, over the
    devices that hold convolutions (over all devices, if no layers are off chip).
    """

    slowest_ps: int
    perfect_ps: float
    coarse: float
    fine: float
    server_ps: int = 0

    @property
    def gap(self) -> float:
        """Excess of the slowest engine's time over that of perfect balance; 0.01 is 1 %."""
        return self.slowest_ps / self.perfect_ps - 1


@dataclasses.dataclass(frozen=True)
class Mapping:
    """The slices of each device of the chain, in the order of the layers.

    `off_chip_devices` hold only layers whose parameters do not fit into on-chip memory.
    """

    network: Network
    devices: tuple[tuple[Slice, ...], ...]
    off_chip_devices: range = range(0)
    balance: Balance | None = None

    def __str__(self) -> str:
        return "\n".join(
            f"device {device}: " + ", ".join(map(str, slices))
            for device, slices in enumerate(self.devices)
        )
