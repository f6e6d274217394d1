"""Numbers as text, and as JSON has them."""

from __future__ import annotations

import math

from ...common import format_time_ps

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def time(ps: int) -> str:
    """Return a time in ps as text, with its unit."""
    return with_micro(format_time_ps(ps))


def with_micro(text: str) -> str:
    """Return a time as text with its unit spelt as pages have it."""
    return text.replace(" us", " µs")


def power_of_two(exponent: int) -> str:
    """Return 2 to the power of `exponent` as text."""
    return f"2{str(exponent).translate(_SUPERSCRIPTS)}"


def rate(samples_per_s: float, noun: str) -> str:
    """Return a rate as text, with its unit; `noun` is what a sample is called."""
    return f"{samples_per_s:,.0f} {noun}s/s" if samples_per_s >= 100 else f"{samples_per_s:.3g} {noun}s/s"


def finite(value: float) -> float | None:
    """Return a number; None where it is NaN or infinite, which JSON has no number for."""
    return float(value) if math.isfinite(value) else None
