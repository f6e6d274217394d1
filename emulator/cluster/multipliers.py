"""Multipliers of DSPs: how many of each class a DSP makes, by its type, and how engines of several
classes share DSPs.

FP32 is not in the table of types: one DSP is one multiplier of single precision, as the papers
count, whatever its type, unless a board's `[multipliers]` says otherwise. Adders that a DSP lacks
are of LUTs. Where a figure has no source it is assumed, and `source` says so.

The rates of a board are those of its `[multipliers]`, if it has them. Otherwise they are those of
its `dsp_type` for narrow classes, and one multiplier a DSP for single precision, and for all where
the type is unknown. LUTs are then those of an engine for each DSP (`lut_per_dsp`), whatever the DSP
multiplies: an assumption.

Engines share DSPs in *parts*, the largest part of a DSP of which every engine's multipliers take
whole numbers. Where all are of one class, a part is a multiplier. With FP in INT8, of which a DSP
makes 2, and EB and PG in half, of which it makes 1, a part is half a DSP:

    DSP 0                 DSP 1                 DSP 2
    [ INT8 FP ][ INT8 FP ] [      half EB       ] [      half PG       ]      parts of a multiplier: 1, 2, 2
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

from ..number import narrowest


@dataclasses.dataclass(frozen=True)
class RealMultiplier:
    """What a multiply-accumulate really takes, which accumulates in fp32: DSPs as text and the
    fewest, and LUTs.
    """

    dsps: str
    fewest_dsp: int
    lut: int


@dataclasses.dataclass(frozen=True)
class DspType:
    """A type of DSPs; `per_dsp` are the multiply-accumulates a cycle of one, by class.

    `real` has the classes of which one takes more than counted here. A DSP `has_fp32` if it
    multiplies and adds in single precision by itself.
    """

    name: str
    per_dsp: Mapping[str, int]
    source: str
    has_fp32: bool = False
    real: Mapping[str, RealMultiplier] = dataclasses.field(default_factory=dict)


_REAL = {
    "fp32": RealMultiplier("2 to 3 DSP48", 2, 1020),
    "half": RealMultiplier("a DSP48", 1, 846),
    "fp8": RealMultiplier("no DSP48", 0, 773),
}
"""Of fused multiply-adds with exact sums, synthesised by Yosys for the 7 series; Xilinx's
floating-point operator (PG060) takes 2 or 3 DSP48 for the multiplier of single precision, and up to
2 more or LUTs for the adder."""

DSP_TYPES: Mapping[str, DspType] = {
    kind.name: kind
    for kind in (
        DspType(
            "DSP48E1",
            {"half": 1, "fp8": 1, "int8": 2, "int4": 4},
            "INT8: two with a shared operand, for which 24 bits of the wide input suffice, and this"
            " has 25 (Xilinx WP486); INT4: twice INT8's, on Zynq-7000, too (WP521); half, FP8: its"
            " one product, assumed",
            real=_REAL,
        ),
        DspType(
            "DSP48E2",
            {"half": 1, "fp8": 1, "int8": 2, "int4": 4},
            "INT8: two with a shared operand (Xilinx WP486; WP487: 1.75 without LUTs); INT4: twice"
            " INT8's (WP521); half, FP8: its one product, assumed",
            real=_REAL,
        ),
        DspType(
            "DSP58",
            {"half": 1, "fp8": 1, "int8": 3, "int4": 3},
            "one FP32 multiply-add with FP32 or FP16 inputs; three 9x8 products, summed (AMD"
            " AM004); FP8: as FP16; INT4: as INT8, assumed",
            has_fp32=True,
        ),
        DspType(
            "Stratix V",
            {"half": 2, "fp8": 3, "int8": 3, "int4": 3},
            "two 18x18 or three 9x9 products (Intel 683258); half, FP8: as products of"
            " significands, assumed; INT4: as INT8, assumed",
        ),
        DspType(
            "Stratix 10",
            {"half": 1, "fp8": 1, "int8": 2, "int4": 2},
            "one FP32 multiply-add, two 18x19 products (Intel 683729); half, FP8: as FP32; INT4: as"
            " INT8, assumed",
            has_fp32=True,
        ),
        DspType(
            "Agilex 5",
            {"half": 2, "fp8": 2, "int8": 6, "int4": 6},
            "one FP32 or the sum of two FP16 products (Intel 813968), six 9x9 products (762191);"
            " its tensor mode, 20 8x8 products of two columns of preloaded operands (813968), is"
            " not counted: tiles change both operands each cycle; FP8: as FP16; INT4: as INT8,"
            " assumed",
            has_fp32=True,
        ),
        DspType(
            "Agilex 7",
            {"half": 2, "fp8": 2, "int8": 4, "int4": 4},
            "one FP32 or the sum of two FP16 products, four 9x9 products (Intel 683458); FP8: as"
            " FP16; INT4: as INT8, assumed",
            has_fp32=True,
        ),
    )
}
"""By the names that the key `dsp_type` of a board takes."""


SINGLE_CLASSES = ("fp32", "fp32", "fp32")
"""The classes of FP, EB and PG in single precision."""


@dataclasses.dataclass(frozen=True)
class MultiplierRate:
    """Multipliers of a class: a DSP makes `per_dsp`, and an engine has `lut` LUTs for each."""

    kind: str
    per_dsp: Fraction
    lut: int


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
