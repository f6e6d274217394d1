"""Types of DSPs: how many multiply-accumulates of each class one does a cycle, with sources.

FP32 is not in the table: one DSP is one multiplier of single precision, as the papers count, whatever its type, unless
a board's `[multipliers]` says otherwise. Adders that a DSP lacks are of LUTs. Where a figure has no source it is
assumed, and `source` says so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class RealMultiplier:
    """What a multiply-accumulate really takes, which accumulates in fp32: DSPs as text and the fewest, and LUTs."""

    dsps: str
    fewest_dsp: int
    lut: int


@dataclasses.dataclass(frozen=True)
class DspType:
    """A type of DSPs; `per_dsp` are the multiply-accumulates a cycle of one, by class.

    `real` has the classes of which one takes more than counted here. A DSP `has_fp32` if it multiplies and adds in
    single precision by itself.
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
"""Of fused multiply-adds with exact sums, synthesised by Yosys for the 7 series; Xilinx's floating-point operator
(PG060) takes 2 or 3 DSP48 for the multiplier of single precision, and up to 2 more or LUTs for the adder."""

DSP_TYPES: Mapping[str, DspType] = {
    kind.name: kind
    for kind in (
        DspType(
            "DSP48E1",
            {"half": 1, "fp8": 1, "int8": 2, "int4": 4},
            "INT8: two with a shared operand, for which 24 bits of the wide input suffice, and this has 25 (Xilinx"
            " WP486); INT4: twice INT8's, on Zynq-7000, too (WP521); half, FP8: its one product, assumed",
            real=_REAL,
        ),
        DspType(
            "DSP48E2",
            {"half": 1, "fp8": 1, "int8": 2, "int4": 4},
            "INT8: two with a shared operand (Xilinx WP486; WP487: 1.75 without LUTs); INT4: twice INT8's (WP521);"
            " half, FP8: its one product, assumed",
            real=_REAL,
        ),
        DspType(
            "DSP58",
            {"half": 1, "fp8": 1, "int8": 3, "int4": 3},
            "one FP32 multiply-add with FP32 or FP16 inputs; three 9x8 products, summed (AMD AM004); FP8: as FP16;"
            " INT4: as INT8, assumed",
            has_fp32=True,
        ),
        DspType(
            "Stratix V",
            {"half": 2, "fp8": 3, "int8": 3, "int4": 3},
            "two 18x18 or three 9x9 products (Intel 683258); half, FP8: as products of significands, assumed; INT4: as"
            " INT8, assumed",
        ),
        DspType(
            "Stratix 10",
            {"half": 1, "fp8": 1, "int8": 2, "int4": 2},
            "one FP32 multiply-add, two 18x19 products (Intel 683729); half, FP8: as FP32; INT4: as INT8, assumed",
            has_fp32=True,
        ),
        DspType(
            "Agilex 5",
            {"half": 2, "fp8": 2, "int8": 6, "int4": 6},
            "one FP32 or the sum of two FP16 products (Intel 813968), six 9x9 products (762191); its tensor mode, 20"
            " 8x8 products of two columns of preloaded operands (813968), is not counted: tiles change both operands"
            " each cycle; FP8: as FP16; INT4: as INT8, assumed",
            has_fp32=True,
        ),
        DspType(
            "Agilex 7",
            {"half": 2, "fp8": 2, "int8": 4, "int4": 4},
            "one FP32 or the sum of two FP16 products, four 9x9 products (Intel 683458); FP8: as FP16; INT4: as INT8,"
            " assumed",
            has_fp32=True,
        ),
    )
}
"""By the names that the key `dsp_type` of a board takes."""
