"""The RTL of a device, as parameters of the modules in `sv/`: what of a plan is built, and how
(FPDeep, section 5).

Every layer's slice is a module `slice`; the SFU behind a layer's last slice is a module for the
bias and one for each of its steps. Tiles are those of the plan's engines. `EVERY` is 1 where the
interleaving of sums hides the latency of the multiply-adds, as `sv/engine.sv` says; elsewhere
groups of convolutions are that many cycles apart.

What has RTL: kinds of layers, and settings of a plan.

Also here: names as SystemVerilog and C++ have them, identifiers of layers, and text of others in
comments.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
import re

from ...kernels.number import NumberFormat
from ..common import InputError, one_line
from ..mapping import (
    Cut,
    DeviceStreams,
    Slice,
    SliceEngines,
    Stream,
    first_own,
    steps_before_sending,
    streams,
)
from ..network import Layer, SfuStep
from ..network.operations.activations import Relu
from ..network.operations.conv import Conv, Fc
from ..network.operations.pool import MaxPool
from ..number import SINGLE, Precision
from ..plan import ChainPlan
from .engines import DotUnits, EngineDesign, dot_engine, dot_sums
from .formats import RowDraws, by_chance, check_formats, rounding_cycles
from .verilator import sources

KINDS = (
    "conv (without groups and dilation), fc, relu, max-pool (windows that do not overlap), softmax"
)
"""What has RTL; the loss, softmax with cross-entropy, is computed on the host."""


def check(plan: ChainPlan) -> None:
    """Check that all of a plan has RTL.

    Raises:
        InputError: it has not; the message says what has.
    """
    config, timing = plan.config, plan.timing
    plan.needs_rows("RTL")
    check_formats(config.precision)
    if config.lora is not None:
        raise InputError(f"`lora` = {str(config.lora)!r}: RTL trains all layers; leave it out")
    for layer in plan.network.layers:
        _check_layer(layer)
    if any(steps_before_sending(layer, plan.cluster.link.share) for layer in plan.network.layers):
        raise InputError(
            '`share` = "paths" in `[links]`: RTL pools after a layer\'s last slice; leave'
            " `share` out"
        )
    if config.schedule.name != "sync":
        raise InputError(
            f"`schedule` = {config.schedule.name!r}: RTL supports one schedule, 'sync'"
        )
    if config.optimizer != "sgd":
        raise InputError(f"`optimizer` = {config.optimizer!r}: RTL supports one optimiser, 'sgd'")
    if config.clip_norm is not None:
        raise InputError(
            f"`clip_norm` = {config.clip_norm:g}: RTL clips no gradients; leave it out"
        )
    if plan.network.loss != "softmax" or config.class_weights:
        raise InputError(
            f"`loss` = {plan.network.loss!r}{' with `class_weights`' * bool(config.class_weights)}:"
            " RTL takes the errors of one loss, 'softmax' of classes that weigh the same"
        )
    if config.freeze:
        raise InputError(
            f"`freeze` = {','.join(config.freeze)!r}: RTL trains all layers; leave it out"
        )
    if plan.missing_bytes or timing.blocks or any(plan.off_chip_bytes):
        beyond = sum(plan.off_chip_bytes) + plan.missing_bytes
        what = (
            f"{beyond:,} bytes do not fit on chip"
            if beyond
            else "parameters do not fit on the boards that use them"
        )
        raise InputError(
            f"{plan.network.name} on {plan.devices} x {plan.cluster.boards[0].name}: {what}, but"
            " RTL keeps all of a device's data there; use more devices, larger boards, or a"
            " smaller network"
        )


def _check_layer(layer: Layer) -> None:
    if layer.vocabulary_parallel:
        raise InputError(
            f"{layer.name}: has no RTL with `vocabulary_parallel` = true; leave that out of softmax"
        )
    operations = [layer.operation, *(step.operation for step in layer.sfu)]
    for operation in operations:
        if not _has_rtl(operation):
            raise InputError(f"{layer.name}: {_said(operation)} has no RTL; these have: {KINDS}")
    names = [layer.makes.number, *(step.makes.number for step in layer.sfu)]
    reads = [step.reads[0].number for step in layer.sfu]
    if (
        layer.bypass
        or layer.reads_again
        or reads != names[:-1]
        or [t.number for t in layer.hands_on] != names[-1:]
    ):
        raise InputError(
            f"{layer.name}: maps that bypass a layer have no RTL; layers in one row have, of"
            f" {KINDS}"
        )


def _has_rtl(operation: object) -> bool:
    if isinstance(operation, Conv):
        return operation.groups == 1 and operation.dilation == (1, 1)
    if isinstance(operation, MaxPool) and operation.ceil:
        return False
    if isinstance(operation, MaxPool):
        return all(
            step >= kernel for step, kernel in zip(operation.step, operation.kernel, strict=True)
        )
    return isinstance(operation, (Fc, Relu))


def _said(operation: object) -> str:
    kind = str(getattr(operation, "type", operation))
    if isinstance(operation, Conv):
        gaps = "" if operation.dilation == (1, 1) else f" with `dilation` = {[*operation.dilation]}"
        return f"{kind} in {operation.groups} groups{gaps}"
    return f"{kind} with windows that overlap" if isinstance(operation, MaxPool) else kind


UPDATE_LANES = 8
"""Parameters of a slice that enter its update in a cycle, at most; each takes seven multiply-adds.
"""

ADD_CYCLES = 16
"""Cycles in which the SFU adds the bias to a row, at most."""


@dataclasses.dataclass(frozen=True)
class Room:
    """How much a slice's memories hold: samples in flight, and rows that wait for others."""

    samples: int
    rows: int


@dataclasses.dataclass(frozen=True)
class BiasDesign:
    """The bias of a layer: lanes that add it and that sum its gradient."""

    add_lanes: int
    add_cycles: int
    sums: EngineDesign
    lanes: int
    update_cycles: int


@dataclasses.dataclass(frozen=True)
class SliceDesign:
    """A slice's modules; in `rounding_cycles` its weights are rounded after an update, where they
    are not with it; `units` are engines whose products are added in blocks.
    """

    part: Slice
    fp: EngineDesign
    eb: EngineDesign | None
    pg: EngineDesign
    lanes: int
    update_cycles: int
    latency: int
    bias: BiasDesign | None
    rounding_cycles: int = 0
    units: DotUnits | None = None

    @property
    def layer(self) -> Layer:
        """Its layer."""
        return self.part.layer

    @property
    def name(self) -> str:
        """The layer's name as one of SystemVerilog."""
        return identifier(self.layer.name)

    @property
    def is_icp(self) -> bool:
        """Whether it is cut by input channels."""
        return self.part.cut is Cut.ICP

    @property
    def is_flat(self) -> bool:
        """Whether it is of a fully connected layer, a convolution over a map of one row and
        column.
        """
        return isinstance(self.layer.operation, Fc)

    @property
    def arriving(self) -> int:
        """Channels of the activations that arrive: its own, and under ICP those of the slices to
        come.
        """
        return self.layer.input[0] - (self.part.begin if self.is_icp else 0)

    @property
    def before(self) -> int:
        """Output channels of the slices before it, which come on path 2 under OCP."""
        return 0 if self.is_icp else self.part.out_channels.start

    @property
    def passed(self) -> int:
        """Channels on path 1 to the next slice."""
        return self.arriving - len(self.part.in_channels) if self.is_icp else self.arriving

    @property
    def sent(self) -> int:
        """Channels of its outputs: partial sums, or the outputs so far."""
        return self.before + len(self.part.out_channels)

    def summed(self, errors: NumberFormat) -> int:
        """Return how many channels of its input errors, from the first on, leave as sums, which
        slices before it round: under OCP all, under ICP those of a block that begins there.
        """
        if self.part.is_first:
            return 0
        begin = self.part.begin
        own = first_own(begin, errors) - begin if self.is_icp else self.arriving
        return min(own, self.arriving)

    def activation_draws(self, precision: Precision) -> RowDraws | None:
        """Return the words by which what its SFU hands on is rounded by chance; None if it is not."""
        made = self.layer.hands_on[0]
        cycles = self.fp.row_cycles
        return RowDraws.of(precision, "activations", made.number, made.shape, 0, cycles)

    def output_error_draws(self, precision: Precision) -> RowDraws | None:
        """Return the words of the errors of its outputs, where these come from the host."""
        made, cycles = self.layer.makes, self.fp.row_cycles
        return RowDraws.of(precision, "errors", made.number, self.layer.output, 0, cycles)

    def input_error_draws(self, precision: Precision) -> RowDraws | None:
        """Return the words of the errors of its inputs, from the first channel on that it rounds."""
        if self.eb is None:
            return None
        first = self.summed(precision.errors) + (self.part.begin if self.is_icp else 0)
        tensor, cycles = self.layer.reads.number, self.eb.row_cycles
        return RowDraws.of(precision, "errors", tensor, self.layer.input, first, cycles)

    @property
    def steps(self) -> tuple[SfuStep, ...]:
        """The steps of the SFU behind it."""
        return self.layer.sfu if self.part.is_last else ()

    @property
    def words(self) -> int:
        """Weights."""
        return (
            len(self.part.out_channels) * len(self.part.in_channels) * math.prod(self.layer.kernel)
        )


_DEEPEST = 1024
"""More cycles than any pipeline is deep."""


@dataclasses.dataclass(frozen=True)
class DeviceDesign:
    """A device's slices, in the order of the layers; its walk over them, and what crosses on either
    side.
    """

    number: int
    slices: tuple[SliceDesign, ...]
    period_ps: int
    streams: DeviceStreams
    left: tuple[Stream, ...]
    right: tuple[Stream, ...]
    precision: Precision
    seed: int = 0

    @property
    def is_end(self) -> bool:
        """Whether its outputs are the network's."""
        return self.streams.is_chain_end

    @property
    def reset_cycles(self) -> int:
        """Cycles of reset after its parameters are written: pipelines drain, and all blocks of
        weights are rounded.
        """
        return _DEEPEST + 2 * max(part.rounding_cycles for part in self.slices)

    @property
    def module(self) -> str:
        """The name of its top module."""
        return f"device{self.number}"


def designs_of(plan: ChainPlan, latency: int = 0) -> tuple[DeviceDesign, ...]:
    """Return the RTL of a plan's devices, with multiply-adds of `latency` cycles.

    Raises:
        InputError: something in the plan has no RTL.
    """
    check(plan)
    crossing: list[tuple[Stream, ...]] = [
        (),
        *(streams(plan.mapping, link) for link in range(plan.devices - 1)),
        (),
    ]
    precision, seed, designs = plan.config.precision, plan.config.seed, []
    for device, slices in enumerate(plan.mapping.devices):
        period_ps = plan.cluster.board(device).period_ps
        parts = tuple(
            slice_design(part, engines, latency, period_ps, precision)
            for part, engines in zip(slices, plan.timing.engines[device], strict=True)
        )
        sides = crossing[device], crossing[device + 1]
        walk = plan.timing.streams(device)
        designs.append(DeviceDesign(device, parts, period_ps, walk, *sides, precision, seed))
    return tuple(designs)


def slice_design(
    part: Slice, engines: SliceEngines, latency: int, period_ps: int, precision: Precision = SINGLE
) -> SliceDesign:
    """Return a slice's modules, on the plan's engines.

    Raises:
        InputError: the engines are not of tiles that take convolutions in turn.
    """
    layer, view = part.layer, part.layer.engine_view
    inputs, outputs = len(part.in_channels) * view.values, len(part.out_channels)
    units = _units_of(part, engines, latency, precision) if precision.dot else None
    if units is None:
        fp, eb, pg = _tiles_of(part, engines, latency, period_ps)
    else:
        fp, eb, pg = units.fp.design, units.eb.design if units.eb else None, units.pg.design
    words = inputs * outputs * view.tile
    lanes = min(UPDATE_LANES, words // outputs)
    bias = (
        bias_design(layer, fp.row_cycles, pg.row_cycles, latency)
        if part.is_last and layer.bias
        else None
    )
    rounded = rounding_cycles(
        precision.weights,
        (outputs, words // outputs),
        across=part.cut is Cut.ICP,
        chance=by_chance(precision, "weights"),
    )
    update_cycles = -(-words // lanes)
    return SliceDesign(part, fp, eb, pg, lanes, update_cycles, latency, bias, rounded, units)


def depth_of(latency: int) -> int:
    """Return the cycles of exact sums beside additions of `latency`: two, as `dot_product` cuts
    them, or fewer.
    """
    return min(2, latency)


def _units_of(part: Slice, engines: SliceEngines, latency: int, precision: Precision) -> DotUnits:
    """Return the units of a slice whose products are added in blocks."""
    depth = depth_of(latency)
    fp = dot_engine(part, "FP", engines.fp.multipliers, precision, depth, latency)
    eb = None
    if engines.eb is not None:
        eb = dot_engine(part, "EB", engines.eb.multipliers, precision, depth, latency)
    assert engines.pg is not None  # all layers with RTL have weights
    pg = dot_sums(part, engines.pg.multipliers, precision, depth, latency)
    return DotUnits(fp, eb, pg)


def _tiles_of(
    part: Slice, engines: SliceEngines, latency: int, period_ps: int
) -> tuple[EngineDesign, EngineDesign | None, EngineDesign]:
    """Return the tiles of FP, EB and PG of a slice."""
    view = part.layer.engine_view
    inputs, outputs = len(part.in_channels) * view.values, len(part.out_channels)
    chain = view.tile * latency
    fp = EngineDesign.of(
        inputs * outputs * view.out_columns,
        outputs * view.out_columns,
        engines.fp.multipliers // view.tile,
        chain,
    )
    eb = None
    if engines.eb is not None:
        eb = EngineDesign.of(
            inputs * outputs * view.in_columns,
            inputs * view.in_columns,
            engines.eb.multipliers // view.tile,
            chain,
        )
    assert engines.pg is not None  # all layers with RTL have weights
    pg = EngineDesign.of(
        inputs * outputs * view.out_columns,
        inputs * outputs,
        engines.pg.multipliers // view.tile,
        latency,
    )
    for planned, built in ((engines.fp, fp), (engines.eb, eb), (engines.pg, pg)):
        if planned is not None and built is not None and planned.row_ps != built.groups * period_ps:
            raise InputError(
                f"{part}: RTL has tiles that take the convolutions of a row in turn; set"
                ' `convolution_engines` = "tiles" in the cluster\'s file'
            )
    return fp, eb, pg


def bias_design(layer: Layer, fp_cycles: int, pg_cycles: int, latency: int) -> BiasDesign:
    """Return the lanes with which the bias of a layer keeps the pace of FP and PG."""
    channels, _, columns = layer.output
    values = channels * columns
    add_lanes = -(-values // min(fp_cycles, ADD_CYCLES, values))
    sum_lanes = min(channels, -(-values // min(pg_cycles, values)))
    lanes = min(UPDATE_LANES, channels)
    sums = EngineDesign.of(values, channels, sum_lanes, latency)
    return BiasDesign(add_lanes, -(-values // add_lanes), sums, lanes, -(-channels // lanes))


_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9]{0,40}(_[0-9]{1,9}){0,3}")
"""Names that no name made of another one equals: those end in an underscore and a word."""

_SYSTEM_VERILOG = """
accept_on alias always always_comb always_ff always_latch and assert assign assume automatic before begin bind bins
binsof bit break buf bufif0 bufif1 byte case casex casez cell chandle checker class clocking cmos config const
constraint context continue cover covergroup coverpoint cross deassign default defparam design disable dist do edge
else end endcase endchecker endclass endclocking endconfig endfunction endgenerate endgroup endinterface endmodule
endpackage endprimitive endprogram endproperty endspecify endsequence endtable endtask enum event eventually expect
export extends extern final first_match for force foreach forever fork forkjoin function generate genvar global highz0
highz1 if iff ifnone ignore_bins illegal_bins implements implies import incdir include initial inout input inside
instance int integer interconnect interface intersect join join_any join_none large let liblist library local
localparam logic longint macromodule matches medium modport module nand negedge nettype new nexttime nmos nor
noshowcancelled not notif0 notif1 null or output package packed parameter pmos posedge primitive priority program
property protected pull0 pull1 pulldown pullup pulsestyle_ondetect pulsestyle_onevent pure rand randc randcase
randsequence rcmos real realtime ref reg reject_on release repeat restrict return rnmos rpmos rtran rtranif0 rtranif1
s_always s_eventually s_nexttime s_until s_until_with scalared sequence shortint shortreal showcancelled signed small
soft solve specify specparam static string strong strong0 strong1 struct super supply0 supply1 sync_accept_on
sync_reject_on table tagged task this throughout time timeprecision timeunit tran tranif0 tranif1 tri tri0 tri1 triand
trior trireg type typedef union unique unique0 unsigned until until_with untyped use uwire var vectored virtual void
wait wait_order wand weak weak0 weak1 while wildcard wire with within wor xnor xor
"""
_CPP = """
alignas alignof asm auto bool catch char concept consteval constexpr constinit decltype delete double explicit false
float friend goto inline long main mutable namespace noexcept nullptr operator private public register requires short
sizeof switch template throw true try typeid typename using volatile
"""
_OWN = """
batch clk decay device done errors images in labels limit loss module momentum of out outputs overrun overruns path port
rate reads reset rst schedule settings share take updated
"""
"""Of the top modules; `device0` is one."""
_RESERVED = frozenset(f"{_SYSTEM_VERILOG} {_CPP} {_OWN}".split())


@functools.cache
def _of_modules() -> frozenset[str]:
    """Return all words of the modules that instances are of: a name hides a signal of the same
    one.
    """
    return frozenset(
        word
        for path in sources()
        for word in re.findall(r"\w+", path.read_text(encoding="utf-8").lower())
    )


def _is_free(name: str) -> bool:
    word = name.lower()
    return (
        word not in _RESERVED and word not in _of_modules() and not re.fullmatch(r"device\d+", word)
    )


def identifier(name: str) -> str:
    """Return a layer's name as an identifier, another one for each name; a plain name stays as it
    is.

    What is no plain name, or a word of a language or of a module, gets a digest of it behind: `a-b`
    is not `a_b`.
    """
    if _PLAIN.fullmatch(name) and _is_free(name):
        return name
    plain = re.sub(r"[^A-Za-z0-9]", "_", name)[:40].strip("_") or "layer"
    plain = plain if plain[0].isalpha() else f"layer_{plain}"
    return f"{plain}_{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def comment(text: str) -> str:
    """Return text of others for a comment of one line, behind other words: tools obey some that
    come first.
    """
    return one_line(text)
