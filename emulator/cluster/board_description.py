"""Descriptions of boards, FPGAs and GPUs, as in a cluster's `[[boards]]`, and of `[uncertainty]` in
either's file.

`constants.py` says what a range means.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import pydantic
from annotated_types import Ge, Gt, Le

from ...kernels.number import MULTIPLIERS
from ..common import (
    FINITE,
    GbytesPerSecond,
    InputError,
    Megahertz,
    Model,
    Name,
    NotNegative,
    NotNegativeFinite,
    Positive,
    PositiveFinite,
    PositiveNumber,
    Share,
    Watts,
    as_tuple,
    did_you_mean,
)
from ..number import narrowest
from .arrays import ArrayFpga, EngineArray
from .board import ACTIVATION_CYCLES, KBIT, LSTM_UNITS, Board, PeArray
from .constants import ConstantRange, RangeClass, range_of_class
from .fpga import LUT_PER_DSP, Fpga, WholeEnginesFpga, lut_multipliers
from .gpu import Gpu
from .multipliers import DSP_TYPES, Budget, MultiplierRate, lut_each


class RangeDescription(Model):
    """An entry of `[uncertainty]`."""

    low: PositiveFinite | None = None
    high: PositiveFinite | None = None
    kind: Annotated[RangeClass, pydantic.Field(alias="class")] = "measured"
    source: Annotated[str, pydantic.Field(alias="from")] = ""
    date: datetime.date | str | None = None

    @pydantic.model_validator(mode="after")
    def _has_range(self) -> RangeDescription:
        if (self.low is None) != (self.high is None):
            raise ValueError("`low` and `high` belong together; one of them is missing")
        if self.low is None and self.kind == "measured":
            raise ValueError("class 'measured' needs `low` and `high`")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"`low` = {self.low:g} is above `high` = {self.high:g}")
        return self


_Numbers = Annotated[
    tuple[PositiveFinite, ...],
    pydantic.Field(min_length=1, max_length=1000),
    pydantic.BeforeValidator(as_tuple),
]


class NextMeasurementDescription(Model):
    """A table of `[[next_measurement]]`: what `emuchain calibrate check` compares measurements
    with.
    """

    what: Literal["message", "copy", "scale", "add", "triad", "products"]
    where: dict[str, str] | None = None
    start_ns: NotNegativeFinite = 0.0
    sizes: _Numbers
    values: _Numbers
    lows: _Numbers
    highs: _Numbers
    null: _Numbers

    @pydantic.model_validator(mode="after")
    def _is_whole(self) -> NextMeasurementDescription:
        columns = (self.values, self.lows, self.highs, self.null)
        if {len(self.sizes)} != set(map(len, columns)):
            raise ValueError(
                "`sizes`, `values`, `lows`, `highs` and `null` must have the same length"
            )
        if sorted(set(self.sizes)) != list(self.sizes):
            raise ValueError("`sizes` must increase")
        return self


NextMeasurements = Annotated[
    tuple[NextMeasurementDescription, ...],
    pydantic.BeforeValidator(as_tuple),
]

_SLACK = 1e-9
"""Share by which a value may be outside its range: of what rounds when files are written."""


def constant_ranges(
    described: Mapping[str, RangeDescription] | None,
    known: Iterable[str],
    values: Mapping[str, Iterable[Any]],
    source: str,
) -> tuple[ConstantRange, ...]:
    """Return the ranges of an `[uncertainty]` table.

    Args:
        described: the table, if there is any.
        known: keys that may stand in it.
        values: those of each key, on all boards or links that have it.
        source: beginning of messages.

    Raises:
        InputError: a key is unknown, has no value, or one outside its range.
    """
    ranges = []
    for key, entry in (described or {}).items():
        if key not in known:
            hint = did_you_mean(key, list(known))
            raise InputError(
                f"{source}: uncertainty: unknown key `{key}`; {hint}known keys: {', '.join(known)}"
            )
        numbers = [value for value in values.get(key, ()) if _is_number(value)]
        if not numbers:
            raise InputError(
                f"{source}: uncertainty: `{key}` has no value in this file that could be uncertain"
            )
        date = "" if entry.date is None else str(entry.date)
        if entry.low is None or entry.high is None:
            low, high = range_of_class(key, entry.kind)
            ranges.append(ConstantRange(key, low, high, entry.kind, entry.source, date))
            continue
        for value in numbers:
            if not entry.low * (1 - _SLACK) <= value <= entry.high * (1 + _SLACK):
                raise InputError(
                    f"{source}: uncertainty: `{key}` = {value:g} is outside its range,"
                    f" {entry.low:g} to {entry.high:g}"
                )
        if len(set(numbers)) > 1:
            raise InputError(
                f"{source}: uncertainty: `{key}` has several values; give the range in each board's"
                " file"
            )
        [value] = set(numbers)
        ranges.append(
            ConstantRange(
                key, entry.low / value, entry.high / value, entry.kind, entry.source, date
            )
        )
    return tuple(ranges)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_MOST_DENOMINATOR = 1000

BUILT, ONE_PER_DSP = "built", "one-per-dsp"
"""How multipliers are counted where a board does not list its own: as they are built, by its type
of DSPs, which is the default where the type is known; or as papers count.
"""


class MultiplierDescription(Model):
    """The multipliers of a class: how many a DSP makes, and the LUTs of an engine for each."""

    per_dsp: Annotated[float, FINITE, Ge(0.01), Le(1000)] = 1.0
    lut: NotNegative | None = None

    def rate(self, kind: str, lut_per_dsp: int) -> MultiplierRate:
        """Return the rate of multipliers of a class; without `lut`, they share those of an engine
        for a DSP.
        """
        per_dsp = Fraction(self.per_dsp).limit_denominator(_MOST_DENOMINATOR)
        return MultiplierRate(
            kind, per_dsp, lut_each(lut_per_dsp, per_dsp) if self.lut is None else self.lut
        )


class MultipliersDescription(Model):
    """A board's `[multipliers]`: the classes that its engines may have."""

    fp32: MultiplierDescription | None = None
    half: MultiplierDescription | None = None
    fp8: MultiplierDescription | None = None
    int8: MultiplierDescription | None = None
    int4: MultiplierDescription | None = None

    def rates(self, lut_per_dsp: int) -> tuple[MultiplierRate, ...]:
        """Return the rates of all classes that are given."""
        given = ((kind, getattr(self, kind)) for kind in MULTIPLIERS)
        return tuple(said.rate(kind, lut_per_dsp) for kind, said in given if said is not None)


def _counted(value: Any, of_table: pydantic.ValidatorFunctionWrapHandler) -> Any:
    """Return a table of multipliers, or how they are counted."""
    if not isinstance(value, str):
        return of_table(value)
    if value not in (BUILT, ONE_PER_DSP):
        hint = did_you_mean(value, [BUILT, ONE_PER_DSP])
        raise ValueError(f"{hint}should be {BUILT!r}, {ONE_PER_DSP!r}, or a table of classes")
    return value


if TYPE_CHECKING:
    Multipliers: TypeAlias = MultipliersDescription | str
else:
    Multipliers = Annotated[MultipliersDescription, pydantic.WrapValidator(_counted)]


def _alike(described: Any, kind: type[Board]) -> dict[str, Any]:
    """Return the keys of a description that are fields of its kind of board, in the same unit."""
    own = {field.name for field in dataclasses.fields(described)}
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]  # all kinds are dataclasses
    return {field.name: getattr(described, field.name) for field in fields if field.name in own}


_ENGINES: Mapping[str, type[Fpga]] = {
    "tiles": Fpga,
    "whole": WholeEnginesFpga,
    "arrays": ArrayFpga,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class FpgaDescription:
    """A `[[boards]]` table, with the keys of its `type` filled in."""

    type: str | None = None
    kind: Literal["fpga"] = "fpga"
    name: Name
    clock_mhz: Megahertz
    dsp: Positive
    dsp_share: Share = 1.0
    efficiency: Share = 1.0
    on_chip_memory_kbit: Annotated[int, Ge(1), Le(10**9)]
    power_w: Watts | None = None
    price: PositiveNumber | None = None
    lut: Positive | None = None
    lut_per_dsp: Positive = LUT_PER_DSP
    dsp_type: str | None = None
    multipliers: Multipliers | None = None
    lut_share: Share = 1.0
    shell_dsp: NotNegative = 0
    shell_lut: NotNegative = 0
    shell_ff: NotNegative = 0
    shell_bram: NotNegative = 0
    ff: Positive | None = None
    bram: Positive | None = None
    bram_kbit: Annotated[int, Ge(18), Le(1000)] = 36
    uram: NotNegative = 0
    transceivers: Positive | None = None
    transceiver_gbps: PositiveNumber | None = None
    off_chip_memory_gbytes: PositiveNumber | None = None
    off_chip_gbytes_per_s: GbytesPerSecond | None = None
    host_gbytes_per_s: GbytesPerSecond | None = None
    off_chip_pj_per_bit: PositiveNumber | None = None
    convolution_engines: Literal["tiles", "whole", "arrays"] = "tiles"
    array_outputs: Positive | None = None
    array_positions: Positive | None = None
    drain_cycles: NotNegative = 0
    start_cycles: NotNegative = 0
    load_exposed: Annotated[float, FINITE, Ge(0), Le(1)] = 0.0
    pe_chains: Positive | None = None
    pes_per_chain: Positive | None = None
    pe_words: Positive | None = None
    mvm_units: Positive = LSTM_UNITS
    activation_cycles: NotNegative = ACTIVATION_CYCLES
    source: str | None = None
    uncertainty: dict[str, RangeDescription] | None = None
    next_measurement: NextMeasurements | None = None
    count: Annotated[int, Ge(1), Le(100_000)] = 1

    @property
    def pe_array(self) -> PeArray | None:
        """The board's chains of PEs; None if it has none.

        Raises:
            ValueError: of the keys that describe them some are missing.
        """
        keys = {
            "pe_chains": self.pe_chains,
            "pes_per_chain": self.pes_per_chain,
            "pe_words": self.pe_words,
        }
        if all(value is None for value in keys.values()):
            return None
        for key, value in keys.items():
            if value is None:
                raise ValueError(f"`{key}` is missing: chains of PEs have all of {', '.join(keys)}")
        chains, pes, words = (value or 0 for value in keys.values())
        return PeArray(chains, pes, words, self.mvm_units, self.activation_cycles)

    def board(self, alpha: float) -> Fpga:
        """Return the board, with multipliers built of LUTs if `alpha` is below 1.

        Raises:
            ValueError: of the keys that describe chains of PEs some are missing, or the type of
                DSPs is unknown.
        """
        if self.dsp_type is not None and self.dsp_type not in DSP_TYPES:
            hint = did_you_mean(self.dsp_type, [*DSP_TYPES])
            raise ValueError(f"`dsp_type` = {self.dsp_type!r}: {hint}known: {', '.join(DSP_TYPES)}")
        off_chip, given = self.off_chip_memory_gbytes, self.multipliers
        kind = _ENGINES[self.convolution_engines]
        keys = _alike(self, kind) | self._beside_shell()
        if self._array is not None:
            keys["array"] = self._array
        board = kind(
            **keys,
            period_ps=max(1, round(1e6 / (self.clock_mhz * self.efficiency))),
            rates=given.rates(self.lut_per_dsp)
            if isinstance(given, MultipliersDescription)
            else (),
            budget=self._budget(keys),
            off_chip_memory_bytes=None if off_chip is None else round(off_chip * 1e9),
            pe_array=self.pe_array,
        )
        if board.budget is not None and alpha < 1:
            raise ValueError(
                f"`resources.alpha` = {alpha:g}: built multipliers have their own mix of DSPs and"
                f" LUTs; should be 1, or the board's `multipliers` = {ONE_PER_DSP!r}"
            )
        if board.rates and narrowest([rate.kind for rate in board.rates], *board.classes) is None:
            return board  # of no use in single precision; in a narrower one it gets its own
        return dataclasses.replace(board, lut_multipliers=lut_multipliers(board, alpha))

    @property
    def _array(self) -> EngineArray | None:
        """The shape of engines that are arrays; None of others.

        Raises:
            ValueError: a key is missing, or of other engines.
        """
        shape = {"array_outputs": self.array_outputs, "array_positions": self.array_positions}
        besides = {"drain_cycles": self.drain_cycles, "start_cycles": self.start_cycles}
        if self.convolution_engines != "arrays":
            for key, value in (shape | besides).items():
                if value:
                    raise ValueError(f'`{key}`: is of `convolution_engines` = "arrays" alone')
            return None
        for key, value in shape.items():
            if value is None:
                raise ValueError(f'`{key}` is missing: `convolution_engines` = "arrays" needs it')
        assert self.array_outputs is not None
        assert self.array_positions is not None
        return EngineArray(
            self.array_outputs, self.array_positions, self.drain_cycles, self.start_cycles
        )

    def _beside_shell(self) -> dict[str, Any]:
        """Return the resources that the shell leaves.

        Raises:
            ValueError: it takes all of one.
        """
        on_chip_kbit = self.on_chip_memory_kbit - self.shell_bram * self.bram_kbit
        left = {
            "dsp": self.dsp - self.shell_dsp,
            "lut": None if self.lut is None else self.lut - self.shell_lut,
            "ff": None if self.ff is None else self.ff - self.shell_ff,
            "bram": None if self.bram is None else self.bram - self.shell_bram,
            "on_chip_memory_bytes": on_chip_kbit * KBIT // 8,
        }
        for key, room in left.items():
            if room is not None and room <= 0:
                taken = f"shell_{key}" if key in ("dsp", "lut", "ff") else "shell_bram"
                raise ValueError(
                    f"`{taken}` = {getattr(self, taken)} leaves nothing; should be below what the"
                    " board has"
                )
        return left

    def _budget(self, left: Mapping[str, Any]) -> Budget | None:
        """Return what engines may take of what the shell leaves; None where multipliers are not
        built.

        Raises:
            ValueError: the type of DSPs is not given.
        """
        if self.multipliers != BUILT and (self.multipliers or self.dsp_type is None):
            return None
        if self.dsp_type is None:
            raise ValueError(
                f"`multipliers` = {BUILT!r}: needs `dsp_type`, one of {', '.join(DSP_TYPES)}"
            )
        # 0.29 of 100 DSPs are 29, but the product of these floats is 28.999999999999996.
        dsp = math.floor(self.dsp * self.dsp_share + 1e-9) - self.shell_dsp
        lut, ff = left["lut"], left["ff"]
        if self.lut is not None:
            lut = math.floor(self.lut * self.lut_share + 1e-9) - self.shell_lut
        return Budget(max(1, dsp), lut, ff)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GpuDescription:
    """A `[[boards]]` table with `kind = "gpu"`, with the keys of its `type` filled in."""

    type: str | None = None
    kind: Literal["gpu"] = "gpu"
    name: Name
    peak_tflops: PositiveNumber
    gemm_efficiency: Share
    memory_gbytes_per_s: GbytesPerSecond
    recurrent_us: Annotated[float, FINITE, Gt(0), Le(1e6)]
    persistent_gbytes_per_s: GbytesPerSecond
    persistent_gru_gbytes_per_s: GbytesPerSecond | None = None
    memory_gbytes: PositiveNumber | None = None
    power_w: Watts | None = None
    price: PositiveNumber | None = None
    source: str | None = None
    uncertainty: dict[str, RangeDescription] | None = None
    count: Annotated[int, Ge(1), Le(100_000)] = 1

    def board(self, alpha: float) -> Gpu:
        """Return the board; what FPGAs' engines are built of, `alpha`, is nothing to it."""
        alike, of_gru = _alike(self, Gpu), self.persistent_gru_gbytes_per_s
        alike["persistent_gru_gbytes_per_s"] = (
            self.persistent_gbytes_per_s if of_gru is None else of_gru
        )
        return Gpu(
            **alike,
            recurrent_ps=round(self.recurrent_us * 1e6),
            off_chip_memory_bytes=(
                None if self.memory_gbytes is None else round(self.memory_gbytes * 1e9)
            ),
        )
