"""Engines: tiles that take convolutions in turn, and units whose products are added in blocks,
`accumulate = "dot:N"` (docs/numbers.md).

FP and EB have units that multiply N channels at a place of the kernel for two channels of their
results in a cycle: exactly, two products in a DSP, and with one addition in fp32 for each of the
two sums (`sv/dot_engine.sv`). Units of PG take N pixels for the weights of two output channels
(`sv/dot_sums.sv`). Operands are whole numbers of up to eight bits, alone or in blocks with a scale.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Literal

from ...kernels.number import BlockGrid, NumberFormat
from ..common import InputError
from ..mapping import Slice
from ..network import Layer, Window
from ..network.operations.conv import Conv, Fc
from ..number import Precision

WIDTH = 8
"""Bits of an operand in blocks."""

Phase = Literal["FP", "EB"]


def interleaved_every(sums: int, tiles: int, depth: int) -> int:
    """Return the cycles between groups of convolutions so that a sum is there when its next product
    comes.

    `depth` is the latency of a tile; the tiles work on `sums` sums in turn, chained where there are
    more tiles.
    """
    if tiles <= sums:
        return -(-(depth + 1) // (sums // tiles))
    return -(-tiles // sums) * depth + 1


@dataclasses.dataclass(frozen=True)
class EngineDesign:
    """FP, EB or PG: tiles, cycles between groups, and cycles from a row's last group to its results
    (`tail`).
    """

    tiles: int
    every: int
    groups: int
    tail: int

    @property
    def row_cycles(self) -> int:
        """Cycles of a row."""
        return self.every * self.groups

    @classmethod
    def of(cls, convolutions: int, sums: int, tiles: int, depth: int) -> EngineDesign:
        """Return the engine whose rows have `convolutions` on `sums` sums, on tiles with a latency
        of `depth`.

        A row starts in one cycle, fills the line buffers in the next, and its operands in the one
        after; the results of the last group of a chain of tiles are there a `depth` for each of
        them, and a cycle, later.
        """
        every = interleaved_every(sums, tiles, depth)
        tail = 2 + -(-tiles // sums) * depth - (every - 1)
        return cls(tiles, every, -(-convolutions // tiles), tail)

    @classmethod
    def of_units(cls, units: int, groups: int, every: int, depth: int) -> EngineDesign:
        """Return the engine of units, as many as work at once, with a latency of `depth`."""
        return cls(units, every, groups, 2 + depth - (every - 1))


@dataclasses.dataclass(frozen=True)
class DotEngine:
    """FP or EB of a slice, with `units` of which each has `2 * dot` multipliers.

    `depth` and `latency` are the cycles of the exact sums and of the additions in fp32; `steps` is
    the exponent of a product of two operands' least ones, `shared` how many channels have a scale,
    or 0.
    """

    part: Slice
    phase: Phase
    units: int
    dot: int
    shared: int
    steps: int
    depth: int = 0
    latency: int = 0

    @property
    def read(self) -> int:
        """Channels that are read, over which it sums."""
        view = self.part.in_channels if self.phase == "FP" else self.part.out_channels
        return len(view)

    @property
    def is_flat(self) -> bool:
        """Whether it is EB of a fully connected layer, whose results are one row of one column."""
        return self.phase == "EB" and isinstance(self.part.layer.operation, Fc)

    @property
    def made(self) -> int:
        """Channels of its results."""
        if self.is_flat:
            return len(self.part.in_channels) * self.part.layer.engine_view.values
        view = self.part.out_channels if self.phase == "FP" else self.part.in_channels
        return len(view)

    @property
    def blocks(self) -> int:
        """Blocks of a sum, at all places of the kernel."""
        return -(-self.read // self.dot) * math.prod(self.window.kernel)

    @property
    def window(self) -> Window:
        """The layer's window, as `window_in_blocks` has it."""
        return Window((1, 1), (1, 1), (0, 0)) if self.is_flat else window_in_blocks(self.part.layer)

    @property
    def columns(self) -> tuple[int, int]:
        """Columns that are read, and of the results."""
        if self.is_flat:
            return 1, 1
        there, back = self.part.layer.input[2], self.part.layer.output[2]
        return (there, back) if self.phase == "FP" else (back, there)

    @property
    def every(self) -> int:
        """Cycles between groups of blocks, so that a sum is there when its next block comes."""
        return interleaved_every(-(-self.made // 2) * self.columns[1], self.units, self.latency)

    @property
    def groups(self) -> int:
        """Groups of blocks of a row."""
        return -(-self.blocks * -(-self.made // 2) * self.columns[1] // self.units)

    @property
    def design(self) -> EngineDesign:
        """Its units and cycles."""
        return EngineDesign.of_units(self.units, self.groups, self.every, self.depth + self.latency)

    @property
    def parameters(self) -> Mapping[str, int]:
        """The parameters of `dot_engine`."""
        kernel, stride, pad = self.window[:3]
        read, made = self.columns
        return {
            "BACKWARD": int(self.phase == "EB"),
            "OUTERS": self.read,
            "CHANNELS": self.made,
            "COLUMNS": made,
            "COLUMNS_READ": read,
            "KERNEL_ROWS": kernel[0],
            "KERNEL_COLUMNS": kernel[1],
            "STRIDE": stride[1],
            "PAD": pad[1],
            "UNITS": self.units,
            "DOT": self.dot,
            "WIDTH": WIDTH,
            "SHARED": self.shared,
            "STEPS": self.steps,
            "DEPTH": self.depth,
            "LATENCY": self.latency,
        }


def window_in_blocks(layer: Layer) -> Window:
    """Return a layer's window; a kernel that covers the map steps over all of it, so that in EB no
    place outside of the map is added.
    """
    window = layer.window
    if window.kernel == layer.input[1:] and window.pad == (0, 0):
        return window._replace(stride=window.kernel)
    return window


def dot_engine(
    part: Slice,
    phase: Phase,
    multipliers: int,
    precision: Precision,
    depth: int = 0,
    latency: int = 0,
) -> DotEngine:
    """Return FP or EB of a slice, of as many units as these multipliers make, at least one.

    Raises:
        InputError: its layer has none, or its operands are no whole numbers of `WIDTH` bits at most.
    """
    operation = part.layer.operation
    if not isinstance(operation, (Conv, Fc)) or (
        isinstance(operation, Conv) and (operation.groups > 1 or operation.dilation != (1, 1))
    ):
        raise InputError(
            f"{part.layer.name}: an engine of blocks is that of a convolution without groups and"
            " dilation, or of a fully connected layer; leave out `accumulate`"
        )
    operands = precision.activations if phase == "FP" else precision.errors, precision.weights
    steps = sum(step_of(number) for number in operands)
    shared, of_weights = (number.block for number in operands)
    if (shared > 0) != (of_weights > 0):
        raise InputError(
            f"`precision` = {str(precision)!r}: an engine of blocks reads scales of both operands,"
            f" or of none; {operands[0].name} and {operands[1].name} differ"
        )
    engine = DotEngine(part, phase, 1, precision.dot, shared, steps, depth, latency)
    units = _units(multipliers, precision.dot, -(-engine.made // 2) * engine.columns[1])
    return dataclasses.replace(engine, units=units)


def _units(multipliers: int, dot: int, sums: int) -> int:
    """Return how many units of `2 * dot` these multipliers make; at most one for each two sums."""
    return max(1, min(multipliers // (2 * dot), sums))


@dataclasses.dataclass(frozen=True)
class DotSums:
    """PG of a slice, with `units` of which each has two multipliers for each of the `pixels` of a
    block, or of a shorter row; others as `DotEngine` has them.
    """

    part: Slice
    units: int
    pixels: int
    steps: int
    depth: int = 0
    latency: int = 0

    @property
    def lanes(self) -> int:
        """Pixels of a block that a row can have."""
        return min(self.pixels, self.part.layer.output[2])

    @property
    def pairs(self) -> int:
        """Pairs of weights, of two output channels."""
        view = self.part.layer.engine_view
        inputs = len(self.part.in_channels) * view.values
        return -(-len(self.part.out_channels) // 2) * inputs * view.tile

    @property
    def segments(self) -> int:
        """Blocks of which a row of errors has pixels, at most."""
        _, rows, columns = self.part.layer.output
        first = (row * columns % self.pixels for row in range(rows))
        return max(-(-(place + columns) // self.pixels) for place in first)

    @property
    def design(self) -> EngineDesign:
        """Its units and cycles."""
        every = interleaved_every(self.pairs, self.units, self.latency)
        groups = -(-self.segments * self.pairs // self.units)
        return EngineDesign.of_units(self.units, groups, every, self.depth + self.latency)


def dot_sums(
    part: Slice, multipliers: int, precision: Precision, depth: int = 0, latency: int = 0
) -> DotSums:
    """Return PG of a slice, of as many units as these multipliers make, at least one. A block has
    no more pixels than a sample.

    Raises:
        InputError: its operands are no whole numbers of `WIDTH` bits at most.
    """
    _, rows, columns = part.layer.output
    pixels = min(precision.dot, rows * columns)
    steps = step_of(precision.activations) + step_of(precision.errors)
    engine = DotSums(part, 1, pixels, steps, depth, latency)
    return dataclasses.replace(engine, units=_units(multipliers, engine.lanes, engine.pairs))


@dataclasses.dataclass(frozen=True)
class DotUnits:
    """The engines of a slice of a device, whose products are added in blocks."""

    fp: DotEngine
    eb: DotEngine | None
    pg: DotSums

    @property
    def parameters(self) -> Mapping[str, int]:
        """The parameters of `slice` that they have."""
        return {
            "DOT": self.fp.dot,
            "DEPTH_OF_SUMS": self.fp.depth,
            "FP_STEPS": self.fp.steps,
            "EB_STEPS": self.eb.steps if self.eb else 0,
            "PG_STEPS": self.pg.steps,
            "PG_DOT": self.pg.pixels,
            "PG_SEGMENTS": self.pg.segments,
        }


def step_of(number: NumberFormat) -> int:
    """Return the exponent of the least positive number of a format, under a scale of 1.

    Raises:
        InputError: it has no whole numbers, or they are too wide.
    """
    grid = number.grid.element if isinstance(number.grid, BlockGrid) else number.grid
    if grid is None or not grid.is_fixed_point or number.bits > WIDTH:
        raise InputError(
            f"{number.name}: an engine of blocks multiplies whole numbers of up to {WIDTH} bits,"
            " such as int8 and mxint8"
        )
    return grid.least_exponent - grid.fraction_bits
