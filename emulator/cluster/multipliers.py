"""Multipliers of DSPs: how many of each class a DSP makes, and how engines of several classes share DSPs.

The rates of a board are those of its `[multipliers]`, if it has them. Otherwise they are those of its `dsp_type` for
narrow classes, and one multiplier a DSP for single precision, and for all where the type is unknown. LUTs are then
those of an engine for each DSP (`lut_per_dsp`), whatever the DSP multiplies: an assumption.

Engines share DSPs in *parts*, the largest part of a DSP of which every engine's multipliers take whole numbers. Where
all are of one class, a part is a multiplier.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from fractions import Fraction

from ..number import narrowest
from .dsp_types import DSP_TYPES

SINGLE_CLASSES = ("fp32", "fp32", "fp32")
"""The classes of FP, EB and PG in single precision."""


@dataclasses.dataclass(frozen=True)
class MultiplierRate:
    """Multipliers of a class: a DSP makes `per_dsp`, and an engine has `lut` LUTs for each."""

    kind: str
    per_dsp: Fraction
    lut: int


def rate_of(kind: str, given: Sequence[MultiplierRate], dsp_type: str | None, lut_per_dsp: int) -> MultiplierRate:
    """Return the rate at which a board multiplies in a class; of those `given`, the narrowest that holds its values.

    Raises:
        ValueError: all that are given are too narrow.
    """
    if given:
        chosen = narrowest([rate.kind for rate in given], kind)
        if chosen is None:
            known = ", ".join(rate.kind for rate in given)
            raise ValueError(
                f"`multipliers` has {known}, and none as wide as {kind}; add it, such as {kind} = {{ per_dsp = 1, lut ="
                f" {lut_per_dsp} }}, or give a narrower `precision`"
            )
        return next(rate for rate in given if rate.kind == chosen)
    per_dsp = Fraction(DSP_TYPES[dsp_type].per_dsp.get(kind, 1) if dsp_type else 1)
    return MultiplierRate(kind, per_dsp, lut_each(lut_per_dsp, per_dsp))


def lut_each(lut_per_dsp: int, per_dsp: Fraction) -> int:
    """Return the LUTs of each of the multipliers that share a DSP and an engine's LUTs for it."""
    return math.ceil(lut_per_dsp / per_dsp)


@dataclasses.dataclass(frozen=True)
class SharedDsps:
    """How engines of FP, EB and PG share DSPs: the rates of each, the parts of its multiplier, and those of a DSP."""

    rates: tuple[MultiplierRate, ...]
    parts: tuple[int, ...]
    parts_per_dsp: Fraction

    @classmethod
    def among(cls, rates: Sequence[MultiplierRate]) -> SharedDsps:
        """Return how engines with these rates share DSPs."""
        shares = [1 / rate.per_dsp for rate in rates]
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
