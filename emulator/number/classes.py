"""Classes of multipliers, and which hold the values of others.

A multiplier, of one of the classes of `MULTIPLIERS`, has one format for both of its operands, so a
product takes the narrowest class that holds both. Floats do not hold all integers of as many bits:
an integer of 8 bits has more digits than FP8's significand, and FP8's range is more than an
integer's of 8 bits. So these two meet in `half`, whose significand has 8 bits in BF16 and 11 in
FP16.

    fp32 <- half <- fp8  <- int4         a class holds exactly what those hold from which arrows come
                 <- int8 <- int4
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
    """Return the narrowest of some classes that holds the values of all that are needed; None if
    none does.
    """
    # MULTIPLIERS runs from the widest class to the narrowest.
    able = [kind for kind in MULTIPLIERS if kind in classes and {*needed} <= {kind, *HELD[kind]}]
    return able[-1] if able else None


def joint_class(one: str, other: str) -> str:
    """Return the narrowest class that multiplies values of one class by those of another."""
    kind = narrowest(MULTIPLIERS, one, other)
    assert kind is not None  # fp32 holds all
    return kind


Classes = tuple[str, str, str]
"""Those of the multipliers of FP, EB and PG."""


def joint_classes(one: Classes, other: Classes) -> Classes:
    """Return the narrowest classes of engines that compute in those of both."""
    forward, back, gradient = map(joint_class, one, other)
    return forward, back, gradient
