"""The result of a measure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from .claim import Value


@dataclasses.dataclass(frozen=True)
class Measured:
    """A measured value, with a short note on how it was measured or on its context."""

    ours: Value
    how: str = ""


Measure = Callable[[], Measured]


class NoEvidence(Exception):
    """Raised where a claim cannot be measured; `str(error)` says what is missing."""
