"""What a board's multipliers reach: the peak of each class of numbers, beside designs that were
measured.

A board's peak is that of a large product on engines that fill what the board leaves to them:
multipliers x clock x 2, of which pipelines keep a share (`reach`) busy. Its range is what other
designs on such devices came to, which

- used 0.2 to 1.1 times as much of the device: a range of the board alone must hold small designs;
- had a clock of 0.55 to 1.25 times that of designs that fill a device of the family as far;
- reached 0.79 to 0.98 of their peak;
- took 0.95 to 1.2 times as much for each multiplier, or what its implementation says.

These are independent, so their logarithms add up in squares. For a design of which the DSPs and the
clock are known, `rate_of_design` leaves out the first two.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from ...kernels.number import MULTIPLIERS
from .constants import find_range
from .fpga import Fpga
from .multipliers import (
    DSP_TYPES,
    ORIGINS,
    WHOLE,
    Implementation,
    MultiplierRate,
    SharedDsps,
    best_mix,
)


@dataclasses.dataclass(frozen=True)
class Design:
    """A design that was built: the share of its device's DSPs that it uses, its clock, and what it
    was measured to multiply; 0 where it does something else.
    """

    board: str
    dsp_type: str
    dsp: int
    dsp_share: float
    clock_mhz: float
    source: str
    multipliers: int = 0
    gflops: float = 0

    @property
    def reach(self) -> float:
        """The share of its multipliers' peak that it reached."""
        return self.gflops * 1000 / (2 * self.multipliers * self.clock_mhz)


_GEMM, _EVAL, _EVAL_21 = "HPCC FPGA GEMM 1.0", "hpcc_fpga_eval 2020", "hpcc_fpga_eval_21"

DESIGNS: tuple[Design, ...] = (
    Design("U280", "DSP48E2", 7683, 0.851, 236, _GEMM, 1536, 603.86),
    Design("U280", "DSP48E2", 2566, 0.285, 250, _EVAL, 512, 202.617),
    Design("520N", "Stratix 10", 3398, 0.590, 160.42, _GEMM, 2560, 708.95),
    Design("520N", "Stratix 10", 726, 0.126, 320.83, _EVAL, 512, 321.589),
    Design("PAC D5005", "Stratix 10", 726, 0.126, 296, _EVAL, 512, 241.759),
    Design("520N", "Stratix 10", 3318, 0.576, 272.5, f"{_EVAL_21}, GEMM", 2560, 1232.41),
    Design("520N", "Stratix 10", 1560, 0.271, 400, f"{_EVAL_21}, FFT"),
    Design("520N", "Stratix 10", 2809, 0.488, 225, f"{_EVAL_21}, LINPACK"),
    Design("520N", "Stratix 10", 2809, 0.488, 244, f"{_EVAL_21}, LINPACK"),
    Design("520N", "Stratix 10", 3185, 0.553, 280, f"{_EVAL_21}, LINPACK"),
    Design("520N", "Stratix 10", 3185, 0.553, 233.333, f"{_EVAL_21}, LINPACK"),
    Design("520N", "Stratix 10", 3129, 0.543, 88.636, f"{_EVAL_21}, LINPACK"),
    Design("520N", "Stratix 10", 2981, 0.518, 171.429, f"{_EVAL_21}, LINPACK"),
    Design("VX485T", "DSP48E1", 2240, 0.800, 100, "C. Zhang et al., FPGA 2015"),
)
"""Designs of pc2/HPCC_FPGA, pc2/hpcc_fpga_eval and pc2/hpcc_fpga_eval_21 (all MIT), in single
precision, and FPDeep's reference 42."""

_LIKE = {
    "DSP58": "DSP48E2",
    "Agilex 5": "Stratix 10",
    "Agilex 7": "Stratix 10",
    "Stratix V": "Stratix 10",
}
"""Families of which no design is known, and those that stand for them."""
_NEAR = 0.25
"""Difference of two shares of a device at which clocks are comparable: HPCC's designs beside others
on the 520N have 296 to 400 MHz below 0.3, and 89 to 280 MHz above 0.48."""

CLOCK_RANGE = (0.55, 1.25)
"""5th and 95th percentile of the designs' clocks over the median of those near them."""
FILL_RANGE = (0.21, 1.12)
"""Smallest measured engine over the fullest on its device, and a device that is filled to 0.95."""


def clock_mhz(dsp_type: str, dsp_share: float, designs: Sequence[Design] = DESIGNS) -> float:
    """Return the median clock of designs on a family that use about as much of the device; of none,
    of all on it.
    """
    family = _family(dsp_type, designs)
    near = [it.clock_mhz for it in family if abs(it.dsp_share - dsp_share) <= _NEAR]
    return float(np.median(near or [it.clock_mhz for it in family]))


def fill(dsp_type: str, designs: Sequence[Design] = DESIGNS) -> float:
    """Return the share of the DSPs that the fullest design on a family uses."""
    return max(it.dsp_share for it in _family(dsp_type, designs))


def reach(designs: Sequence[Design] = DESIGNS) -> tuple[float, float, float]:
    """Return the median share of their peak that matrix products reach, the lowest and the
    highest.
    """
    shares = sorted(it.reach for it in designs if it.gflops)
    return float(np.median(shares)), shares[0], shares[-1]


def _family(dsp_type: str, designs: Sequence[Design]) -> list[Design]:
    own = [it for it in designs if it.dsp_type == dsp_type]
    like = _LIKE.get(dsp_type, dsp_type)
    return own or [it for it in designs if it.dsp_type == like] or [*designs]


@dataclasses.dataclass(frozen=True)
class Peak:
    """What a large product reaches in a class of numbers: `gflops`, and its 90 % range."""

    kind: str
    multipliers: int
    dsp_each: float
    clock_mhz: float
    gflops: float
    low: float
    high: float
    origin: str
    source: str

    @property
    def size(self) -> str:
        """DSPs of a multiplier, as text."""
        return f"{self.dsp_each:.3g} DSP{'s' * (self.dsp_each != 1)}"

    @property
    def full_gflops(self) -> float:
        """What the multipliers would do if all were busy in each cycle."""
        return 2 * self.multipliers * self.clock_mhz / 1000


def peaks(board: Fpga) -> tuple[Peak, ...]:
    """Return a board's peak in each class that its multipliers can have; 0 of one of which its
    shell leaves no room for any.
    """
    made = []
    for kind in MULTIPLIERS:
        try:
            rate = board.rate(kind)
        except ValueError:  # its own multipliers are too narrow
            continue
        made.append(_peak(board, rate))
    return tuple(made)


def _peak(board: Fpga, rate: MultiplierRate) -> Peak:
    counted = max(1, math.floor(board.usable_dsps * rate.per_dsp))
    multipliers = rate.count if rate.mix else counted
    gflops = 2 * multipliers * board.clock_mhz * board.efficiency / 1000
    # What is counted is a bound, and built ones are what there is.
    real = rate if rate.mix or board.rates else board.built_rate(rate.kind)
    if real is None or not real.mix:
        dsp, origin = float(rate.dsp), "given" if board.rates else "counted"
        return Peak(
            rate.kind, multipliers, dsp, board.clock_mhz, gflops, gflops, gflops, origin, ""
        )
    fits = any(count for _, count in real.mix)
    built = [implementation for implementation, count in real.mix if count or not fits]
    least = max(built, key=lambda implementation: ORIGINS.index(implementation.origin))
    fewer, most = _factors(board, least)
    low = fewer * min(1.0, real.count / max(1, multipliers))
    high = most if rate.mix else 1.0
    return Peak(
        rate.kind,
        multipliers,
        float(rate.dsp),
        board.clock_mhz,
        gflops,
        gflops * low,
        gflops * high,
        least.origin if rate.mix else "counted",
        least.source if rate.mix else "as papers count",
    )


def _factors(board: Fpga, built: Implementation) -> tuple[float, float]:
    """Return the ends of the range of a board's peak, as multiples of it: of the designs' fill, the
    board's own constants, and what its implementation takes.
    """
    own = [find_range(f"board.{key}", board.ranges) for key in ("clock_mhz", "efficiency")]
    ends = [
        FILL_RANGE,
        *((entry.low, entry.high) for entry in own),
        (1 / built.high, 1 / built.low),
    ]
    downs, ups = zip(*ends, strict=True)
    return math.exp(-math.hypot(*map(math.log, downs))), math.exp(math.hypot(*map(math.log, ups)))


@dataclasses.dataclass(frozen=True)
class Gain:
    """How many times as many products a board's engines make as in other formats: `times` as plans
    count them, and `low` to `high` in nine of ten designs.
    """

    times: float
    low: float
    high: float


def products_per_cycle(board: Fpga) -> float:
    """Return how many products engines make in a cycle, of FP, EB and PG as many each."""
    return len(board.shared.parts) * board.multipliers / sum(board.shared.parts)


def gain(board: Fpga, other: Fpga, summed: int) -> Gain:
    """Return the gain of a board in some formats over the same in others.

    Its range is that of what multipliers take. Plans count sums of whole numbers in DSPs; sums in
    fp32, one for each `summed` products (0: none), count at the lower end.
    """
    times = products_per_cycle(board) / products_per_cycle(other)
    (least, most), (other_least, other_most) = _sizes(board), _sizes(other)
    fewest = times
    if board.budget is not None and summed and set(board.classes) & {*WHOLE}:
        fewest = min(times, _adding(board, summed) / products_per_cycle(other))
    return Gain(
        times,
        fewest * math.exp(-math.hypot(math.log(most), math.log(other_least))),
        times * math.exp(math.hypot(math.log(least), math.log(other_most))),
    )


def _adding(board: Fpga, summed: int) -> float:
    """Return the products in a cycle of multipliers with their share of additions in fp32."""
    assert board.budget is not None and board.dsp_type is not None
    rates = []
    for kind in board.classes:
        mix = best_mix(board.dsp_type, kind, board.budget, board.dot, summed)
        rates.append(MultiplierRate.of_mix(kind, mix, board.budget))
    shared = SharedDsps.among(rates)
    parts = math.floor(board.usable_dsps * shared.parts_per_dsp)
    return len(shared.parts) * parts / sum(shared.parts)


def _sizes(board: Fpga) -> tuple[float, float]:
    """Return how many times as much a board's multipliers take in nine of ten designs: at least,
    and at most.
    """
    built = [it for rate in board.shared.rates for it, count in rate.mix if count]
    if not built:
        return 1.0, 1.0
    return min(it.low for it in built), max(it.high for it in built)


def rate_of_design(
    dsp_type: str,
    dsp: int,
    clock: float,
    kind: str = "fp32",
    designs: Sequence[Design] = DESIGNS,
) -> float:
    """Return the GFLOP/s of a matrix product on a design, of which the DSPs and the clock in MHz
    are known; `designs` say which share of their peak others reach.

    Raises:
        ValueError: no implementation of the class takes DSPs.
    """
    dsps = [it.dsp for it in DSP_TYPES[dsp_type].built if it.kind == kind and it.dsp]
    if not dsps:
        raise ValueError(f"{dsp_type} has no multipliers of {kind} in DSPs")
    return 2 * float(Fraction(dsp) / dsps[0]) * clock * reach(designs)[0] / 1000
