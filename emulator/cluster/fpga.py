"""FPGA boards: engines built of tiles of K×K multipliers (FPDeep, sections 5.3 to 5.5 and 6.3.3),
or of whole engines.

A tile does one K×K convolution of one input channel a cycle. A slice with S input and OC output
channels has S·OC of them for each pixel, and the tiles of its engine take them in turn over a row.
So the number of cycles is convolutions divided by tiles, rounded up at the end of a row, and the
only loss is that "the number of DSPs allocated to each layer is rounded to a multiple of K×K".

Whole convolution engines are as sections 5.3 and 5.4 have them to the letter. A slice with S input
and OC output channels has in FP and PG P convolution engines (CEs) of S tiles each: all tiles read
their own input channel, K·K·S activations a cycle, and each CE makes the partial results of one
output channel. EB has S CEs of P tiles, among which the errors of P output channels are broadcast.
So each takes ceil(OC / P) cycles for a pixel, on P·S·K·K multipliers. A slice cannot have less than
one CE, however little time that needs. Section 6.3.3 rounds multipliers to K·K alone, and its idle
shares need that: `Fpga` has single tiles. Fully connected layers have them in both.

    S = 2, OC = 3, a row of 2 pixels: 12 convolutions     4 tiles:   3 cycles, all of them busy
                                                          P = 2 CEs of 2 tiles: 2 cycles a pixel, in the second
                                                          of which one CE idles; 4 cycles
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from ...kernels.number import FP32, MULTIPLIERS
from ..common import InputError
from ..number import narrowest
from .board import ACTIVATION_CYCLES, KBIT, Board, Engine, PeArray, Resources, Work
from .constants import ConstantRange
from .functions import FUNCTIONS
from .multipliers import (
    DSP_TYPES,
    SINGLE_CLASSES,
    Budget,
    MultiplierRate,
    SharedDsps,
    best_mix,
    rate_of,
)

_LONG_CYCLES = 1 << 60
"""More cycles than a sample takes on any engine."""

TOO_MANY = 1 << 60
"""Multipliers that no board has, where the time does not suffice for any number."""

URAM_BANKS = 16
"""Banks in an UltraRAM of 4,096 words of 72 bits (Xilinx UG573)."""

LUT_PER_DSP = 83
FF_PER_DSP = 92
"""LUTs and FFs of a convolution engine for each of its DSPs, control and addressing included:
186,251 LUTs and 205,704 FFs for 2,240 DSPs (C. Zhang et al., FPGA 2015, single precision on a
VX485T; FPDeep's reference 42)."""

LUT_SHARE = 0.8
"""Largest share of a board's LUTs that engines may use: shallow memories need some, and routing
more. An assumption.
"""


@dataclasses.dataclass(frozen=True)
class Fpga(Board):
    """An FPGA board (FPDeep, Table 3).

    Engines may take the share `dsp_share` of its DSPs; `lut_multipliers` are built of LUTs in
    addition. `period_ps` is the time between two cycles in which they work; these are the share
    `efficiency` of the clock's cycles. Block RAMs are `bram` blocks of `bram_kbit` (36 at Xilinx,
    20 at Intel), and `uram` of 288 kbit. `power_w` is the board's power under load, `price` what it
    costs; bits on the memory port take `off_chip_pj_per_bit` in addition. `lut_per_dsp` are an
    engine's LUTs for each DSP. A board of a pair with a GPU is built of chains of PEs in place of
    engines (`pe_array`).

    Engines of FP, EB and PG multiply in `classes`, where layers differ in several threes of them,
    and add in blocks of `dot` products, if that is not 0;
    of each a DSP makes what `rates` say, or else
    its `dsp_type` (`multipliers.py`). All numbers of multipliers that they share are in parts,
    which are multipliers where all have one class. Of multipliers that are built of the
    implementations of the type, `budget` is what they may take; without one, they are as papers
    count. Of the time in which an engine's off-chip data move, it waits for the share
    `load_exposed`; the rest hides behind its work. What the board's shell takes, its memory
    controllers and host's interface, is not counted among its resources.
    """

    name: str
    period_ps: int
    dsp: int
    on_chip_memory_bytes: int
    power_w: float | None = None
    price: float | None = None
    dsp_share: float = 1.0
    efficiency: float = 1.0
    lut_multipliers: int = 0
    lut: int | None = None
    lut_per_dsp: int = LUT_PER_DSP
    dsp_type: str | None = None
    rates: tuple[MultiplierRate, ...] = ()
    classes: tuple[str, ...] = SINGLE_CLASSES
    dot: int = 0
    budget: Budget | None = None
    ff: int | None = None
    bram: int | None = None
    bram_kbit: int = 36
    uram: int = 0
    transceivers: int | None = None
    transceiver_gbps: float | None = None
    off_chip_memory_bytes: int | None = None
    off_chip_gbytes_per_s: float | None = None
    host_gbytes_per_s: float | None = None
    off_chip_pj_per_bit: float | None = None
    pe_array: PeArray | None = None
    load_exposed: float = 0.0
    activation_cycles: int = ACTIVATION_CYCLES
    ranges: tuple[ConstantRange, ...] = dataclasses.field(default=(), repr=False, compare=False)

    @property
    def clock_mhz(self) -> float:
        """See `Board`; the clock itself, whatever the share of its cycles in which engines work."""
        return super().clock_mhz / self.efficiency

    @functools.cached_property
    def shared(self) -> SharedDsps:
        """How engines of the board's classes share DSPs.

        Raises:
            InputError: the board's multipliers are too narrow for a class.
        """
        try:
            return SharedDsps.among([self.rate(kind) for kind in self.classes])
        except ValueError as error:
            raise InputError(f"board {self.name}: {error}") from None

    def rate(self, kind: str) -> MultiplierRate:
        """Return the rate of multipliers of a class.

        Raises:
            ValueError: those that the board has are too narrow.
        """
        built = None if self.budget is None else self.built_rate(kind)
        return built or rate_of(kind, self.rates, self.dsp_type, self.lut_per_dsp)

    def built_rate(self, kind: str) -> MultiplierRate | None:
        """Return the rate of multipliers of a class that are built, also where others are counted;
        None where the type of DSPs is unknown.
        """
        if self.dsp_type is None:
            return None
        budget = self.budget or Budget(self.usable_dsps, self.lut, self.ff)
        mix = best_mix(self.dsp_type, kind, budget, self.dot)
        return MultiplierRate.of_mix(kind, mix, budget)

    @property
    def is_built(self) -> bool:
        """See `Board`."""
        return self.budget is not None

    @functools.cached_property
    def usable_dsps(self) -> int:
        """Number of DSPs that engines may take, at least one."""
        if self.budget is not None:
            return max(1, self.budget.dsp)
        # 0.29 of 100 DSPs are 29, but the product of these floats is 28.999999999999996.
        return max(1, math.floor(self.dsp * self.dsp_share + 1e-9))

    @functools.cached_property
    def dsp_multipliers(self) -> int:
        """Number of multipliers that engines may take from DSPs, at least one; in single precision
        one of each DSP.
        """
        return max(1, math.floor(self.usable_dsps * self.shared.parts_per_dsp))

    @functools.cached_property
    def multipliers(self) -> int:
        """Number of multipliers that engines may take, of DSPs and of LUTs."""
        return self.dsp_multipliers + self.lut_multipliers * max(self.shared.parts)

    @property
    def capacity(self) -> float:
        """See `Board`; as if all multipliers were of the narrowest class."""
        return self.multipliers / (min(self.shared.parts) * self.period_ps)

    @property
    def limits(self) -> Mapping[str, int | None]:
        """See `Board`."""
        return {"dsp": self.dsp, "lut": self.lut, "ff": self.ff, "bram_banks": self.banks or None}

    @property
    def banks(self) -> int:
        """Number of memories of 512 words of 32 bits: two in a BRAM of 36 kbit, one in an M20K, 16
        in an UltraRAM.

        No more than the on-chip memory makes, which a cluster's file may have reduced.
        """
        # A bank has 18 kbit with its parity bits, of which 512 words of 32 bits take 16.
        most = self.on_chip_memory_bytes * 8 // (18 * KBIT)
        if self.bram is not None:
            most = min(most, self.bram * (self.bram_kbit // 18) + self.uram * URAM_BANKS)
        return most

    def fewest_multipliers(self, works: Sequence[Work]) -> int:
        """Return the multipliers of one tile for each engine."""
        return sum(self._parts_within(work, _LONG_CYCLES) for work in works)

    def multipliers_within(self, work: Work, cycles: int) -> int:
        """Return the fewest multipliers, in whole tiles, for a sample in `cycles`, at least one
        cycle a row.
        """
        # Each row has the same whole number of cycles; what a sample has beyond is not used.
        return -(-work.convolutions // (cycles // work.rows)) * work.tile

    def _parts_within(self, work: Work, cycles: int) -> int:
        """Return the fewest multipliers in parts, for a sample in `cycles`."""
        return self.multipliers_within(work, cycles) * self.shared.parts[work.place]

    def row_cycles(self, work: Work, multipliers: int) -> int:
        """Return the cycles of a row on a number of multipliers that `multipliers_within`
        returned.
        """
        return -(-work.convolutions // (multipliers // work.tile))

    def most_channels(
        self, works: Sequence[Work], available: int, left: int, time_ps: int
    ) -> tuple[int, int]:
        """See `Board`."""
        cycles = time_ps // self.period_ps
        if any(work.rows > cycles for work in works):
            return 0, 0
        parts = self.shared.parts
        limits = [
            (work.convolutions, cycles // work.rows, work.tile * parts[work.place])
            for work in works
        ]

        def used(channels: int) -> int:
            total = 0
            for (
                convolutions,
                limit,
                tile,
            ) in limits:  # takes half as long as a sum of what a generator yields
                total -= -channels * convolutions // limit * tile
            return total

        if used(available) <= left:
            return available, used(available)
        # Rounding adds less than a tile to each engine.
        per_channel = sum(convolutions / limit * tile for convolutions, limit, tile in limits)
        # `high` is excluded; one more on either side makes up for the rounding of these floats.
        low = max(0, int((left - sum(tile for _, _, tile in limits)) / per_channel) - 1)
        high = min(available, int(left / per_channel) + 2)
        return most_within(used, left, low, high)

    def build(self, works: Sequence[Work], no_faster_than_ps: int) -> list[Engine]:
        """See `Board`; each engine that takes all of the allowed time gets one more step of
        multipliers, while any are left.
        """
        cycles = max(self._fewest_cycles(works), no_faster_than_ps // self.period_ps)
        left = self.multipliers - sum(self._parts_within(work, cycles) for work in works)
        engines = []
        for work in works:
            multipliers = self.multipliers_within(work, cycles)
            engine = self._engine(work, multipliers)
            # A row of a single cycle cannot become shorter.
            if engine.sample_ps == cycles * self.period_ps and engine.row_ps > self.period_ps:
                more = self.multipliers_within(work, cycles - 1) - multipliers
                if more * self.shared.parts[work.place] <= left:
                    left -= more * self.shared.parts[work.place]
                    engine = self._engine(work, multipliers + more)
            engines.append(engine)
        return engines

    def build_alone(self, work: Work) -> Engine:
        """See `Board`."""
        most = self.multipliers // self.shared.parts[work.place]
        # A row keeps no more tiles busy than it has convolutions.
        return self._engine(work, min(most // work.tile, work.convolutions) * work.tile)

    def _engine(self, work: Work, multipliers: int) -> Engine:
        return Engine(multipliers, work.rows, self.row_cycles(work, multipliers) * self.period_ps)

    def _fewest_cycles(self, works: Sequence[Work]) -> int:
        """Return the cycles of a sample on the slowest engine for the best sharing of the
        multipliers.
        """
        macs = sum(work.macs * self.shared.parts[work.place] for work in works)
        # In `low` cycles it cannot be done: a row takes one at least, and so does a product on each
        # multiplier. In `high`, one tile is enough for each engine.
        low = max(max(work.rows for work in works), -(-macs // self.multipliers)) - 1
        high = self._most_cycles(works)
        while high - low > 1:
            middle = (low + high) // 2
            if sum(self._parts_within(work, middle) for work in works) <= self.multipliers:
                high = middle
            else:
                low = middle
        return high

    def _most_cycles(self, works: Sequence[Work]) -> int:
        """Return the cycles of a sample on the slowest of the smallest engines."""
        return max(work.rows * work.convolutions for work in works)

    def update_ps(self, out_channels: int) -> int:
        """See `Board`: a bank of LPRAM holds OC parameters, updated one a cycle; all banks at once
        (section 5.2.2).
        """
        return out_channels * self.period_ps

    def engine_resources(self, multipliers: Sequence[int]) -> list[Resources]:
        """See `Board`; all are of the class of FP."""
        return self.slice_resources([(count, 0, 0) for count in multipliers])

    def slice_resources(self, slices: Sequence[Sequence[int]]) -> list[Resources]:
        """See `Board`: f2, f3 and f5 of equations (8), (9) and (11); DSPs are taken first, then
        LUTs.
        """
        if self.budget is not None:
            return [self._built(counts) for counts in slices]
        resources, taken, shared = [], 0, self.shared
        for counts in slices:
            before, lut, of_lut = taken, 0, 0
            for count, parts, rate in zip(counts, shared.parts, shared.rates, strict=False):
                of_dsp = min((self.dsp_multipliers - taken) // parts, count)
                taken += of_dsp * parts
                lut += rate.lut * of_dsp
                of_lut += count - of_dsp
            # Two slices may meet within a DSP: it counts for the first of them.
            dsp = shared.dsps(taken) - shared.dsps(before)
            resources.append(
                dataclasses.replace(
                    engine_resources(dsp, of_lut, 0), lut=lut + FP32.multiplier_lut * of_lut
                )
            )
        return resources

    def _built(self, counts: Sequence[int]) -> Resources:
        """Return the resources of a slice's engines of built multipliers."""
        pairs = [*zip(counts, self.shared.rates, strict=False)]

        def taken(resource: str) -> int:
            return math.ceil(sum(rate.each(resource) * count for count, rate in pairs))

        return Resources(lut=taken("lut"), ff=taken("ff"), dsp=taken("dsp"))

    def function_resources(self, counts: tuple[int, int, int], sample_ps: int) -> Resources:
        """See `Board`: whole pipelines of each kind; nothing on boards that papers count."""
        if self.budget is None or self.dsp_type is None:
            return Resources()
        built = DSP_TYPES[self.dsp_type].built
        single = next(multiplier for multiplier in built if multiplier.kind == "fp32")
        pipelines = [-(-count * self.period_ps // max(1, sample_ps)) for count in counts]
        cores = (single, *FUNCTIONS[self.dsp_type])

        def taken(resource: str) -> int:
            pairs = zip(pipelines, cores, strict=True)
            return math.ceil(sum(count * getattr(core, resource) for count, core in pairs))

        return Resources(lut=taken("lut"), ff=taken("ff"), dsp=taken("dsp"))

    def share(self, parts: int, *, whole: bool) -> Fpga:
        """See `Board`."""
        off_chip = self.off_chip_memory_bytes
        board = dataclasses.replace(
            self,
            on_chip_memory_bytes=self.on_chip_memory_bytes // parts,
            off_chip_memory_bytes=None if off_chip is None else off_chip // parts,
        )
        if whole:
            return board
        port, host = self.off_chip_gbytes_per_s, self.host_gbytes_per_s
        return dataclasses.replace(
            board,
            dsp=self.dsp // parts,
            lut_multipliers=self.lut_multipliers // parts,
            budget=None if self.budget is None else self.budget.part(parts),
            off_chip_gbytes_per_s=None if port is None else port / parts,
            host_gbytes_per_s=None if host is None else host / parts,
        )

    def beside(self, *, dsp: int, lut: int, ff: int, bram: int) -> Fpga:
        """See `Board`: engines have as much less; boards that papers count stay whole.

        Raises:
            ValueError: nothing is left of one.
        """
        if self.budget is None:
            return self

        def less(key: str, has: int, taken: int) -> int:
            if has <= taken:
                raise ValueError(f"`links.{key}` leaves nothing beside the cores of its links")
            return has - taken

        memory_bytes = bram * self.bram_kbit * KBIT // 8
        return dataclasses.replace(
            self,
            dsp=less("core_dsp", self.dsp, dsp),
            lut=None if self.lut is None else less("core_lut", self.lut, lut),
            ff=None if self.ff is None else less("core_ff", self.ff, ff),
            bram=None if self.bram is None else less("core_bram", self.bram, bram),
            on_chip_memory_bytes=less("core_bram", self.on_chip_memory_bytes, memory_bytes),
            budget=self.budget.beside(dsp, lut, ff),
        )

    def in_classes(self, classes: tuple[str, ...], alpha: float, dot: int = 0) -> Fpga:
        """Return the board with engines of FP, EB and PG of these classes, in threes, of which
        DSPs make the share `alpha`; products are added in blocks of `dot`, if that is not 0.

        Raises:
            InputError: the board's multipliers are too narrow for a class.
        """
        board = dataclasses.replace(self, classes=classes, dot=dot, lut_multipliers=0)
        of_luts = lut_multipliers(board, alpha)
        return (
            self
            if (classes, dot) == (self.classes, self.dot)
            else dataclasses.replace(board, lut_multipliers=of_luts)
        )

    def one_set(self, works: Iterable[Work], alpha: float) -> Fpga:
        """See `Board`: engines of the narrowest class that holds what all of them multiply."""
        if len({*self.classes}) == 1:
            return self
        kind = narrowest(MULTIPLIERS, *{self.classes[work.place] for work in works})
        assert kind is not None  # fp32 holds all
        if kind not in self._sets:
            classes = (kind,) * len(self.classes)
            self._sets[kind] = self.in_classes(classes, alpha, self.dot)
        return self._sets[kind]

    @functools.cached_property
    def _sets(self) -> dict[str, Fpga]:
        return {}

    def said(self) -> str:
        """See `Board`."""
        kinds = " and ".join(dict.fromkeys(self.classes))
        has = f"`dsp` = {self.dsp}" if self.budget is None else f"multipliers of {kinds} are built"
        counted = "part" if len({*self.shared.parts}) > 1 else "multiplier"
        ending = "s" * (self.multipliers != 1)
        return f"{has}, which gives its engines {self.multipliers:,} {counted}{ending}"


def most_within(used: Callable[[int], int], left: int, low: int, high: int) -> tuple[int, int]:
    """Return the largest number below `high` that uses at most `left`, and what it uses; `low` does
    not use more.
    """
    while high - low > 1:
        middle = (low + high) // 2
        if used(middle) <= left:
            low = middle
        else:
            high = middle
    return low, used(low)


def engine_resources(
    dsp_multipliers: int, lut_multipliers: int, lut_per_dsp: int = LUT_PER_DSP
) -> Resources:
    """Return the resources of engines; one DSP counts as one multiplier, even in single
    precision.
    """
    return Resources(
        lut=lut_per_dsp * dsp_multipliers + FP32.multiplier_lut * lut_multipliers,
        ff=FF_PER_DSP * dsp_multipliers + FP32.multiplier_ff * lut_multipliers,
        dsp=dsp_multipliers,
    )


def lut_multipliers(board: Fpga, alpha: float) -> int:
    """Return the number of multipliers built of LUTs that makes DSPs the share `alpha`, as far as
    the LUTs suffice.

    Where engines differ, they are for the widest class.

    Raises:
        InputError: the board's multipliers are too narrow for its classes.
    """
    shared = board.shared
    if alpha >= 1 or board.lut is None:
        return 0
    of_dsp = board.dsp_multipliers // shared.parts[shared.widest]
    # From alpha = of_dsp / (of_dsp + wanted).
    wanted = of_dsp * (1 - alpha) / alpha
    room = (LUT_SHARE * board.lut - shared.rates[shared.widest].lut * of_dsp) // FP32.multiplier_lut
    return max(0, math.floor(min(wanted, room)))


@dataclasses.dataclass(frozen=True)
class UnevenFpga(Fpga):
    """An FPGA board whose engines do not grow evenly with channels, so that the most are
    searched.
    """

    def most_channels(
        self, works: Sequence[Work], available: int, left: int, time_ps: int
    ) -> tuple[int, int]:
        """See `Board`."""
        cycles = time_ps // self.period_ps
        if any(work.rows > cycles for work in works):
            return 0, 0

        def used(channels: int) -> int:
            more = works if channels else ()
            return sum(self._parts_within(work.of_channels(channels), cycles) for work in more)

        return most_within(used, left, 0, available + 1)


@dataclasses.dataclass(frozen=True)
class WholeEnginesFpga(UnevenFpga):
    """An FPGA board whose convolutions have whole engines."""

    @property
    def smallest_engine(self) -> str:
        """See `Board`."""
        return "a tile for each input channel of each engine"

    def multipliers_within(self, work: Work, cycles: int) -> int:
        """See `Fpga`; in whole convolution engines."""
        if work.takes_turns:
            return super().multipliers_within(work, cycles)
        pixel_cycles = cycles // work.rows // work.columns
        if not pixel_cycles:
            return TOO_MANY
        return -(-work.outputs // pixel_cycles) * engine_multipliers(work)

    def row_cycles(self, work: Work, multipliers: int) -> int:
        """See `Fpga`."""
        if work.takes_turns:
            return super().row_cycles(work, multipliers)
        return work.columns * -(-work.outputs // (multipliers // engine_multipliers(work)))

    def build_alone(self, work: Work) -> Engine:
        """See `Board`."""
        if work.takes_turns:
            return super().build_alone(work)
        size = engine_multipliers(work)
        most = self.multipliers // self.shared.parts[work.place]
        return self._engine(work, min(most // size, work.outputs) * size)


def engine_multipliers(work: Work) -> int:
    """Return the multipliers of a convolution engine: S tiles, one for each input channel."""
    return work.inputs * work.tile
