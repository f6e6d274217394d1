"""Multipliers: what a multiply-accumulate of each class takes, how many a board has room for, and
how engines of several classes share DSPs.

A type of DSPs has *implementations*, each with the DSPs, LUTs and FFs of one multiply-accumulate
and who says so. A board takes the mix of them that gives most multipliers within what its shell and
routing leave to engines (`multipliers = "built"`).

Papers count otherwise (`multipliers = "one-per-dsp"`): one DSP is one multiplier of single
precision whatever its type, of narrow classes it makes `per_dsp`, and LUTs are those of an engine
for each DSP (`lut_per_dsp`), whatever the DSP multiplies. A board's own `[multipliers]` go before
both. Where a figure has no source it is assumed, and `source` says so.

Engines share DSPs in *parts*, the largest part of a DSP of which every engine's multipliers take
whole numbers. Where all are of one class, a part is a multiplier. With FP in INT8, of which a DSP
makes 2, and EB and PG in half, of which it makes 1, a part is half a DSP:

    DSP 0                 DSP 1                 DSP 2
    [ INT8 FP ][ INT8 FP ] [      half EB       ] [      half PG       ]      parts of a multiplier: 1, 2, 2
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Literal, TypeAlias, get_args

from ..number import HELD, narrowest

Origin: TypeAlias = Literal["measured", "report", "data sheet", "synthesised", "assumed"]
"""How it is known what an implementation takes, the surest first."""

ORIGINS: tuple[Origin, ...] = get_args(Origin)
_SURE = ORIGINS.index("data sheet")


@dataclasses.dataclass(frozen=True)
class Implementation:
    """A multiply-accumulate of a class as it is built: DSPs, LUTs and FFs of one, and who says so.

    It `adds` in its DSPs, in LUTs, or natively, in the DSP that multiplies. What it takes in nine
    of ten designs is between `low` and `high` times as much. In an engine of blocks it has its
    share of an addition in fp32, one for `products` of them.
    """

    kind: str
    dsp: Fraction
    lut: int
    ff: int
    adds: Literal["natively", "in DSPs", "in LUTs"]
    origin: Origin
    source: str
    low: float = 0.95
    high: float = 1.2
    products: int = 0

    @property
    def is_sure(self) -> bool:
        """Whether a design was built, or its vendor promises it."""
        return ORIGINS.index(self.origin) <= _SURE


@dataclasses.dataclass(frozen=True)
class DspType:
    """A type of DSPs.

    `per_dsp` are the products a cycle that papers count for one, by class; `built` are the
    implementations of multiply-accumulates that boards have.
    """

    name: str
    per_dsp: Mapping[str, int]
    source: str
    built: tuple[Implementation, ...]


def _native(kind: str, per_dsp: int, source: str, lut: int, ff: int = 92) -> Implementation:
    """Return one that a DSP multiplies and adds by itself, as its vendor says; LUTs are control."""
    own = Fraction(1, per_dsp)
    return Implementation(kind, own, lut, ff, "natively", "data sheet", source, 0.95, 1.4)


_ROUTED = (
    "pc2/hpcc_fpga_eval 2020: 512 take 2,566 DSPs, 149,486 LUTs, 230,197 FFs on a U280, routed"
)
_VITIS = "Vitis HLS: fmul 3 DSPs, 78 LUTs, 143 FFs; fadd without DSPs 338 LUTs, 243 FFs"
_YOSYS = "Yosys, for the 7 series: a fused multiply-add with an exact sum"
_SHARED = "two products with a shared operand, sums of 32 bits in the DSP (Xilinx WP486)"
_FOUR = "twice INT8's (Xilinx WP521)"
_IN_LUTS = (
    Implementation("fp32", Fraction(3), 416, 386, "in LUTs", "synthesised", _VITIS),
    Implementation("half", Fraction(1), 846, 900, "in LUTs", "synthesised", _YOSYS),
    Implementation("fp8", Fraction(0), 773, 800, "in LUTs", "synthesised", _YOSYS),
)
_UNIT = "Yosys, for the 7 series: a unit more of an engine of dot:{} (scripts/rtl-resources --dots)"


def _blocks(products: int, dsp: Fraction, lut: int, ff: int, low: float) -> Implementation:
    """Return one in an engine of blocks; `low` is that of its sums alone, without control."""
    source = _UNIT.format(products)
    return Implementation(
        "int8", dsp, lut, ff, "in LUTs", "synthesised", source, low, products=products
    )


_DSP48 = (
    Implementation("int8", Fraction(1, 2), 42, 46, "in DSPs", "data sheet", _SHARED),
    Implementation("int4", Fraction(1, 4), 21, 23, "in DSPs", "data sheet", _FOUR),
    _blocks(8, Fraction(5, 8), 198, 61, 0.65),
    _blocks(16, Fraction(1, 2), 104, 41, 0.65),
    _blocks(32, Fraction(1, 2), 53, 31, 0.72),
)
_ZHANG = "C. Zhang et al., FPGA 2015: 448 take 2,240 DSPs, 186,251 LUTs, 205,704 FFs on a VX485T"
_GEMM = "HPCC FPGA GEMM 1.0: 2,560 take 3,398 DSPs, 275,754 LUTs, 861,277 FFs on a 520N"
_LIKE_S10 = "addresses and control as on Stratix 10, HPCC FPGA GEMM 1.0"

DSP_TYPES: Mapping[str, DspType] = {
    kind.name: kind
    for kind in (
        DspType(
            "DSP48E1",
            {"half": 1, "fp8": 1, "int8": 2, "int4": 4},
            "INT8: two with a shared operand, for which 24 bits of the wide input suffice, and this"
            " has 25 (Xilinx WP486); INT4: twice INT8's, on Zynq-7000, too (WP521); half, FP8: its"
            " one product, assumed",
            (
                Implementation("fp32", Fraction(5), 416, 459, "in DSPs", "measured", _ZHANG),
                *_IN_LUTS,
                *_DSP48,
            ),
        ),
        DspType(
            "DSP48E2",
            {"half": 1, "fp8": 1, "int8": 2, "int4": 4},
            "INT8: two with a shared operand (Xilinx WP486; WP487: 1.75 without LUTs); INT4: twice"
            " INT8's (WP521); half, FP8: its one product, assumed",
            (
                Implementation("fp32", Fraction(5), 292, 450, "in DSPs", "report", _ROUTED),
                *_IN_LUTS,
                *_DSP48,
            ),
        ),
        DspType(
            "DSP58",
            {"half": 1, "fp8": 1, "int8": 3, "int4": 3},
            "one FP32 multiply-add with FP32 or FP16 inputs; three 9x8 products, summed (AMD"
            " AM004); FP8: as FP16; INT4: as INT8, assumed",
            (
                _native("fp32", 1, "DSPFP32 multiplies and accumulates (AMD AM004)", 83),
                _native("int8", 3, "three 9x8 products, summed (AMD AM004)", 28),
            ),
        ),
        DspType(
            "Stratix V",
            {"half": 2, "fp8": 3, "int8": 3, "int4": 3},
            "two 18x18 or three 9x9 products (Intel 683258); half, FP8: as products of"
            " significands, assumed; INT4: as INT8, assumed",
            (
                Implementation(
                    "fp32",
                    Fraction(1),
                    750,
                    900,
                    "in LUTs",
                    "assumed",
                    "one 27x27 product (Intel 683258), and a sum in LUTs, assumed",
                    0.67,
                    1.5,
                ),
                _native("int8", 3, "three 9x9 products (Intel 683258)", 28),
            ),
        ),
        DspType(
            "Stratix 10",
            {"half": 1, "fp8": 1, "int8": 2, "int4": 2},
            "one FP32 multiply-add, two 18x19 products (Intel 683729); half, FP8: as FP32; INT4: as"
            " INT8, assumed",
            (
                Implementation(
                    "fp32", Fraction(1699, 1280), 108, 336, "natively", "measured", _GEMM, 0.95, 1.1
                ),
                _native("int8", 2, "two 18x19 products (Intel 683729)", 54),
            ),
        ),
        DspType(
            "Agilex 5",
            {"half": 2, "fp8": 2, "int8": 6, "int4": 6},
            "one FP32 or the sum of two FP16 products (Intel 813968), six 9x9 products (762191);"
            " its tensor mode, 20 8x8 products of two columns of preloaded operands (813968), is"
            " not counted: tiles change both operands each cycle; FP8: as FP16; INT4: as INT8,"
            " assumed",
            (
                _native("fp32", 1, f"one FP32 multiply-add (Intel 813968); {_LIKE_S10}", 108, 336),
                _native("half", 2, "the sum of two FP16 products (Intel 813968)", 54, 168),
                _native("int8", 6, "six 9x9 products (Intel 762191)", 18, 56),
            ),
        ),
        DspType(
            "Agilex 7",
            {"half": 2, "fp8": 2, "int8": 4, "int4": 4},
            "one FP32 or the sum of two FP16 products, four 9x9 products (Intel 683458); FP8: as"
            " FP16; INT4: as INT8, assumed",
            (
                _native("fp32", 1, f"one FP32 multiply-add (Intel 683458); {_LIKE_S10}", 108, 336),
                _native("half", 2, "the sum of two FP16 products (Intel 683458)", 54, 168),
                _native("int8", 4, "four 9x9 products (Intel 683458)", 27, 84),
            ),
        ),
    )
}
"""By the names that the key `dsp_type` of a board takes."""


@dataclasses.dataclass(frozen=True)
class Budget:
    """What engines may take of a board: DSPs, LUTs and FFs; None where a board's are unknown."""

    dsp: int
    lut: int | None
    ff: int | None

    def most(self, built: Implementation) -> int:
        """Return how many of an implementation fit, one alone."""
        limits = ((built.dsp, self.dsp), (built.lut, self.lut), (built.ff, self.ff))
        rooms = [int(room / need) for need, room in limits if need and room is not None]
        return max(0, min(rooms))

    def part(self, parts: int) -> Budget:
        """Return one of some equal parts."""
        lut, ff = (None if room is None else room // parts for room in (self.lut, self.ff))
        return Budget(self.dsp // parts, lut, ff)

    def beside(self, dsp: int, lut: int, ff: int) -> Budget:
        """Return what is left beside other logic; at least one DSP."""
        return Budget(
            max(1, self.dsp - dsp),
            None if self.lut is None else self.lut - lut,
            None if self.ff is None else self.ff - ff,
        )

    def without(self, built: Implementation, count: int) -> Budget:
        """Return what is left beside a number of an implementation."""
        return Budget(
            int(self.dsp - count * built.dsp),
            None if self.lut is None else self.lut - count * built.lut,
            None if self.ff is None else self.ff - count * built.ff,
        )


Mix: TypeAlias = tuple[tuple[Implementation, int], ...]
"""Implementations, and how many multipliers of each."""


WHOLE = "int8", "int4"
"""Classes of whole numbers, whose implementations add whole numbers."""


def adding(dsp_type: str, built: Implementation, products: int) -> Implementation:
    """Return an implementation with its share of an addition in fp32, one for some products.

    That takes what a multiply-add of fp8 does, whose product is a small part of it, or that of fp32
    where DSPs have one.
    """
    if built.kind not in WHOLE or not products:
        return built
    by_kind = {other.kind: other for other in reversed(DSP_TYPES[dsp_type].built)}
    add = by_kind.get("fp8", by_kind["fp32"])
    return dataclasses.replace(
        built,
        dsp=built.dsp + add.dsp / products,
        lut=math.ceil(built.lut + add.lut / products),
        ff=math.ceil(built.ff + add.ff / products),
    )


def best_mix(dsp_type: str, kind: str, budget: Budget, dot: int = 0, products: int = 0) -> Mix:
    """Return the mix of implementations that gives most multipliers of a class within a budget.

    A multiplier of a wider class serves a narrower one. Of two implementations the best mix is a
    corner of a small linear program: one of them alone, or as many of the first as leaves the
    second the room that two limits share. More than two at once would win only where all three
    limits bind. What no design had is left out where a surer one makes the class.

    Of products that are added in blocks of `dot`, only an engine of such blocks makes the same
    sums, where the class has one. Elsewhere, with `products`, integer multipliers share one fp32
    adder for that many, and no design is left out.
    """
    every = DSP_TYPES[dsp_type].built
    engines = [built for built in every if dot and (built.kind, built.products) == (kind, dot)]
    able = [it for it in every if kind in (it.kind, *HELD[it.kind]) and not it.products]
    if engines:
        able = engines
    elif products:
        able = [adding(dsp_type, built, products) for built in able]
    elif any(built.kind == kind and built.is_sure for built in able):
        able = [built for built in able if built.is_sure]
    mixes: list[Mix] = [((built, budget.most(built)),) for built in able]
    for first, second in itertools.permutations(able, 2):
        for count in _corners(first, second, budget):
            rest = budget.without(first, count)
            mixes.append(((first, count), (second, rest.most(second))))
    return max(mixes, key=lambda mix: sum(count for _, count in mix))


def _corners(first: Implementation, second: Implementation, budget: Budget) -> Iterator[int]:
    """Yield how many of the first are where two of the limits meet.

        LUTs |\\
             | \\ . DSPs             a x + b y = r   and   c x + d y = s   at
             |  \\   .               x = (r d - b s) / (a d - b c)
             +---\\------ first
    """
    limits: tuple[tuple[Fraction | int, Fraction | int, int | None], ...] = (
        (first.dsp, second.dsp, budget.dsp),
        (first.lut, second.lut, budget.lut),
        (first.ff, second.ff, budget.ff),
    )
    for (a, b, r), (c, d, s) in itertools.combinations(limits, 2):
        across = a * d - b * c
        if r is not None and s is not None and across:
            count = math.floor((r * d - b * s) / across)
            if 0 <= count <= budget.most(first):
                yield count


SINGLE_CLASSES = ("fp32", "fp32", "fp32")
"""The classes of FP, EB and PG in single precision."""


@dataclasses.dataclass(frozen=True)
class MultiplierRate:
    """Multipliers of a class: a DSP makes `per_dsp`, and an engine has `lut` LUTs for each.

    Of built ones, `mix` says of what: then `per_dsp` are those that the engines' DSPs have room
    for, whether DSPs or LUTs are what is short.
    """

    kind: str
    per_dsp: Fraction
    lut: int
    mix: Mix = ()

    @classmethod
    def of_mix(cls, kind: str, mix: Mix, budget: Budget) -> MultiplierRate:
        """Return the rate of a board that is built of a mix within a budget; at least one."""
        count = max(1, sum(count for _, count in mix))
        lut = sum(built.lut * count for built, count in mix)
        return cls(kind, Fraction(count, max(1, budget.dsp)), -(-lut // count), mix)

    @property
    def count(self) -> int:
        """Number of multipliers of the mix."""
        return sum(count for _, count in self.mix)

    def each(self, resource: str) -> Fraction:
        """Return the `dsp`, `lut` or `ff` of a multiplier of the mix, on average."""
        taken = sum((getattr(built, resource) * count for built, count in self.mix), Fraction(0))
        return taken / max(1, self.count)

    @property
    def dsp(self) -> Fraction:
        """DSPs of a multiplier, on average."""
        return self.each("dsp") if self.mix else 1 / self.per_dsp


def rate_of(
    kind: str, given: Sequence[MultiplierRate], dsp_type: str | None, lut_per_dsp: int
) -> MultiplierRate:
    """Return the rate at which a board multiplies in a class; of those `given`, the narrowest that
    holds its values.

    Raises:
        ValueError: all that are given are too narrow.
    """
    if given:
        chosen = narrowest([rate.kind for rate in given], kind)
        if chosen is None:
            known = ", ".join(rate.kind for rate in given)
            raise ValueError(
                f"`multipliers` has {known}, and none as wide as {kind}; add it, such as {kind} ="
                f" {{ per_dsp = 1, lut = {lut_per_dsp} }}, or give a narrower `precision`"
            )
        return next(rate for rate in given if rate.kind == chosen)
    # No type lists fp32: one DSP is one multiplier of single precision.
    per_dsp = Fraction(DSP_TYPES[dsp_type].per_dsp.get(kind, 1) if dsp_type else 1)
    return MultiplierRate(kind, per_dsp, lut_each(lut_per_dsp, per_dsp))


def lut_each(lut_per_dsp: int, per_dsp: Fraction) -> int:
    """Return the LUTs of each of the multipliers that share a DSP and an engine's LUTs for it."""
    return math.ceil(lut_per_dsp / per_dsp)


@dataclasses.dataclass(frozen=True)
class SharedDsps:
    """How engines of FP, EB and PG share DSPs: the rates of each, the parts of its multiplier, and
    those of a DSP.
    """

    rates: tuple[MultiplierRate, ...]
    parts: tuple[int, ...]
    parts_per_dsp: Fraction

    @classmethod
    def among(cls, rates: Sequence[MultiplierRate]) -> SharedDsps:
        """Return how engines with these rates share DSPs."""
        shares = [1 / rate.per_dsp for rate in rates]
        # The greatest common divisor of fractions is that of their numerators over one denominator:
        # of 1/2 and 1/3, that of 3/6 and 2/6, which is 1/6.
        whole = math.lcm(*(share.denominator for share in shares))
        part = Fraction(math.gcd(*(int(share * whole) for share in shares)), whole)
        return cls(tuple(rates), tuple(int(share / part) for share in shares), 1 / part)

    @property
    def widest(self) -> int:
        """The place of the engine whose multipliers take the most of a DSP."""
        return self.parts.index(max(self.parts))

    def dsps(self, parts: int) -> int:
        """Return the DSPs that a number of parts take."""
        return math.ceil(parts / self.parts_per_dsp)
