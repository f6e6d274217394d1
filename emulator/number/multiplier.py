"""Which class of multipliers multiplies which values exactly: the classes of `MULTIPLIERS`, and what each holds.

A multiplier has one format for both of its operands, so a product takes the narrowest class that holds both. Floats do
not hold all integers of as many bits: an integer of 8 bits has more digits than FP8's significand, and FP8's range is
more than an integer's of 8 bits. So these two meet in `half`, whose significand has 8 bits in BF16 and 11 in FP16.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ...kernels.number import MULTIPLIERS

HELD: Mapping[str, tuple[str, ...]] = {
    "fp32": ("half", "fp8", "int8", "int4"),
    "half": ("fp8", "int8", "int4"),
    "fp8": ("int4",),
    "int8": ("int4",),
    "int4": (),
}
"""The narrower classes whose values a class holds exactly."""


def narrowest(classes: Collection[str], *needed: str) -> str | None:
    """Return the narrowest of some classes that holds the values of all that are needed; None if none does."""
    able = [kind for kind in MULTIPLIERS if kind in classes and {*needed} <= {kind, *HELD[kind]}]
    return able[-1] if able else None


def joint_class(one: str, other: str) -> str:
    """Return the narrowest class that multiplies values of one class by those of another."""
    kind = narrowest(MULTIPLIERS, one, other)
    assert kind is not None  # fp32 holds all
    return kind
