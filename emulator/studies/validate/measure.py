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


class NoEvidence(Exception):
    """A claim cannot be measured here and now; `str(error)` says what is missing."""
