"""RTL of engines whose products are added in blocks: `accumulate = "dot:N"` (docs/numbers.md).

FP and EB have units that multiply N channels at a place of the kernel for two channels of their
results in a cycle: exactly, two products in a DSP, and with one addition in fp32 for each of the
two sums (`sv/dot_engine.sv`). What is generated is such an engine with its control and its
weights, a module of its own; devices have none of them yet.

Operands are whole numbers of up to eight bits, alone or in blocks with a scale.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Literal

from ...kernels.number import BlockGrid, NumberFormat
from ..cluster import Engine
from ..common import InputError, write_whole
from ..mapping import Slice
from ..network import Window
from ..network.operations.conv import Conv, Fc
from ..number import Precision
from ..plan import ChainPlan
from .design import comment, identifier, interleaved_every
from .generate import instance
from .verilator import SOURCES

WIDTH = 8
"""Bits of an operand."""

MODULES = (
    *("fp32", "registers", "fp32_sum", "dot_product", "dot_lpram", "dot_engine"),
    *("conv_counter", "row_control"),
)
"""Files of `sv/` that an engine is made of, packages first."""


@dataclasses.dataclass(frozen=True)
class DotEngine:
    """FP or EB of a slice, with `units` of which each has `2 * dot` multipliers.

    `depth` and `latency` are the cycles of the exact sums and of the additions in fp32; `steps` is
    the exponent of a product of two operands' least ones, `shared` how many channels have a scale,
    or 0.
    """

    part: Slice
    phase: Literal["FP", "EB"]
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
    def made(self) -> int:
        """Channels of its results."""
        view = self.part.out_channels if self.phase == "FP" else self.part.in_channels
        return len(view)

    @property
    def blocks(self) -> int:
        """Blocks of a sum, at all places of the kernel."""
        rows, columns = self.part.layer.window[0]
        return -(-self.read // self.dot) * rows * columns

    @property
    def window(self) -> Window:
        """The layer's window; a kernel that covers the map steps over all of it, so that in EB no
        place outside of the map is added.
        """
        window = self.part.layer.window
        if window.kernel == self.part.layer.input[1:] and window.pad == (0, 0):
            return window._replace(stride=window.kernel)
        return window

    @property
    def columns(self) -> tuple[int, int]:
        """Columns that are read, and of the results."""
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
    def row_cycles(self) -> int:
        """Cycles of a row."""
        return self.every * self.groups

    @property
    def tail(self) -> int:
        """Cycles from a row's last group to its results, as `EngineDesign` has it."""
        return 2 + self.depth + self.latency - (self.every - 1)

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


def dot_engine(
    part: Slice,
    phase: Literal["FP", "EB"],
    multipliers: int,
    precision: Precision,
    depth: int = 0,
    latency: int = 0,
) -> DotEngine:
    """Return FP or EB of a slice, of as many units as these multipliers make, at least one.

    Raises:
        InputError: its layer has none, or its operands are not whole numbers of so many bits.
    """
    operation = part.layer.operation
    if not isinstance(operation, (Conv, Fc)) or (
        isinstance(operation, Conv) and operation.groups > 1
    ):
        raise InputError(
            f"{part.layer.name}: an engine of blocks is that of a convolution without groups, or of a"
            " fully connected layer; leave out `accumulate`"
        )
    operands = precision.activations if phase == "FP" else precision.errors, precision.weights
    steps = [_step(number) for number in operands]
    shared = {number.block for number in operands}
    if len(shared) > 1:
        raise InputError(
            f"`precision` = {str(precision)!r}: an engine of blocks reads one scale for the"
            f" channels of both operands; {operands[0].name} and {operands[1].name} differ"
        )
    engine = DotEngine(part, phase, 1, precision.dot, shared.pop(), sum(steps), depth, latency)
    most = -(-engine.made // 2) * engine.columns[1]
    units = max(1, min(multipliers // (2 * precision.dot), most))
    return dataclasses.replace(engine, units=units)


@dataclasses.dataclass(frozen=True)
class PlannedEngine:
    """An engine of a plan's device, of so many multipliers; cycles of a row in the plan."""

    device: int
    engine: DotEngine
    multipliers: int
    planned_cycles: int

    @property
    def module(self) -> str:
        """The name of its module."""
        engine = self.engine
        return f"device{self.device}_{identifier(engine.part.layer.name)}_{engine.phase.lower()}"


def planned_engines(plan: ChainPlan, latency: int = 0) -> tuple[PlannedEngine, ...]:
    """Return FP and EB of each slice of a plan whose products are added in blocks, with additions
    of `latency` cycles.

    Raises:
        InputError: one of them has no such engine.
    """
    plan.needs_rows("RTL")
    made = []
    for device, slices in enumerate(plan.mapping.devices):
        period_ps = plan.cluster.board(device).period_ps
        for part, engines in zip(slices, plan.timing.engines[device], strict=True):
            phases: tuple[tuple[Literal["FP", "EB"], Engine | None], ...] = (
                ("FP", engines.fp),
                ("EB", engines.eb),
            )
            for phase, planned in phases:
                if planned is not None:
                    count, row = planned.multipliers, planned.row_ps // period_ps
                    own = dot_engine(part, phase, count, plan.config.precision, latency=latency)
                    made.append(PlannedEngine(device, own, count, row))
    return tuple(made)


def write_engines(engines: tuple[PlannedEngine, ...], folder: pathlib.Path) -> None:
    """Write engines, and the modules that they are made of, into a folder."""
    for name in MODULES:
        write_whole(folder / f"{name}.sv", (SOURCES / f"{name}.sv").read_bytes())
    for planned in engines:
        text = engine_module(planned.engine, planned.module)
        write_whole(folder / f"{planned.module}.sv", text)


def engine_module(engine: DotEngine, name: str) -> str:
    """Return the text of a module that is an engine with its control, line buffers and weights.

    A row starts when the module is `ready` and the row before has left its units; it takes what
    `rows`, their `scales` and the sums before it are then. `rows_reach` says which rows of a kernel
    meet the row, in EB under strides. The host writes a channel's weights of a block at a place of
    the kernel as a word: codes, the first channel lowest, and their scale above them.
    """
    values = engine.parameters
    blocks, taps = -(-engine.read // engine.dot), values["KERNEL_ROWS"] * values["KERNEL_COLUMNS"]
    words = engine.made * blocks * taps
    entry = max(1, (words - 1).bit_length())
    codes, reads = engine.dot * WIDTH, 2 * engine.units
    scales = -(-engine.read // engine.shared) if engine.shared else 1
    pixels = values["KERNEL_ROWS"] * values["COLUMNS_READ"]
    held = {
        "rows": pixels * engine.read * WIDTH,
        "scales": pixels * scales * 8,
        "rows_reach": values["KERNEL_ROWS"],
        "partial": values["COLUMNS"] * engine.made * 32,
    }
    ports = [
        *(f"    input  logic {wire}" for wire in ("clk", "reset", "ready", "host_write")),
        "    input  logic [31:0] host_address",
        f"    input  logic [{codes + 7}:0] host_data",
        *(f"    input  logic [{bits - 1}:0] {wire}" for wire, bits in held.items()),
        "    output logic start",
        "    output logic out_valid",
        f"    output logic [{held['partial'] - 1}:0] out_row",
    ]
    wires = [
        "    logic issue, last, row;",
        "    logic [31:0] sample;",
        f"    logic [{reads * entry - 1}:0] entry;",
        f"    logic [{reads * codes - 1}:0] weights;",
        f"    logic [{reads * 8 - 1}:0] weight_scales;",
        *(f"    logic [{bits - 1}:0] held_{wire};" for wire, bits in held.items()),
        "    wire unused = &{row, sample};",
    ]
    takes = "".join(f"            held_{wire} <= {wire};\n" for wire in held)
    control = instance(
        "row_control",
        "control",
        {"ROWS": 1, "GROUPS": engine.groups, "EVERY": engine.every},
        {
            wire: wire
            for wire in ("clk", "reset", "ready", "sample", "row", "start", "issue", "last")
        },
    )
    memory = instance(
        "dot_lpram",
        "parameters",
        {"WORDS": words, "CODES": codes, "READS": reads},
        {
            **{wire: wire for wire in ("clk", "host_write", "host_address", "host_data", "entry")},
            "codes": "weights",
            "scales": "weight_scales",
        },
    )
    sums = instance(
        "dot_engine",
        "of",
        values,
        {
            **{wire: wire for wire in ("clk", "reset", "start", "issue", "last")},
            **{wire: f"held_{wire}" for wire in held},
            **{
                wire: wire for wire in ("entry", "weights", "weight_scales", "out_valid", "out_row")
            },
        },
    )
    listed = ",\n".join(ports)
    lines = [
        f"// {engine.phase} of {comment(str(engine.part))}, with products in blocks of {engine.dot}.",
        f"module {name} (\n{listed}\n);\n",
        *wires,
        f"\n    always_ff @(posedge clk)\n        if (start) begin\n{takes}        end\n",
        *(control, memory, sums),
        "\nendmodule\n",
    ]
    return "\n".join(lines)


def _step(number: NumberFormat) -> int:
    """Return the exponent of the least positive number of a format, under a scale of 1."""
    grid = number.grid.element if isinstance(number.grid, BlockGrid) else number.grid
    if grid is None or not grid.is_fixed_point or number.bits > WIDTH:
        raise InputError(
            f"{number.name}: an engine of blocks multiplies whole numbers of up to {WIDTH} bits,"
            " such as int8 and mxint8"
        )
    return grid.least_exponent - grid.fraction_bits
