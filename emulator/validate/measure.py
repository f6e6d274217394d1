"""What a measure gives."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from .claim import Value


@dataclasses.dataclass(frozen=True)
class Measured:
    """What was found, and in a few words how, or what else belongs to it."""

    ours: Value
    how: str = ""


Measure = Callable[[], Measured]


def rounded(value: Value, digits: int = 4) -> Value:
    """The same to so many significant digits, for people."""
    if isinstance(value, (list, tuple)):
        return [rounded(each, digits) for each in value]
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value
