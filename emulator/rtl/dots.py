"""RTL of single engines whose products are added in blocks: a module of its own for each FP and EB,
with its control, line buffers and weights. Formats with scales have these alone, since devices have
no PG of them.
"""

from __future__ import annotations

import dataclasses
import pathlib

from ..cluster import Engine
from ..common import write_whole
from ..plan import ChainPlan
from .design import comment, depth_of, identifier
from .engines import WIDTH, DotEngine, Phase, dot_engine
from .generate import instance
from .verilator import SOURCES

MODULES = (
    *("fp32", "registers", "fp32_sum", "dot_product", "dot_lpram", "dot_engine"),
    *("conv_counter", "row_control"),
)
"""Files of `sv/` that an engine is made of, packages first."""


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
            phases: tuple[tuple[Phase, Engine | None], ...] = (
                ("FP", engines.fp),
                ("EB", engines.eb),
            )
            for phase, planned in phases:
                if planned is not None:
                    count, row = planned.multipliers, planned.row_ps // period_ps
                    precision, depth = plan.config.precision, depth_of(latency)
                    own = dot_engine(part, phase, count, precision, depth, latency)
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
