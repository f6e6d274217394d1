"""Collectives as data: steps that say who sends which pieces to whom, checked and timed."""

from .collective import (
    Collective,
    CollectiveError,
    Goal,
    Phase,
    Round,
    Step,
    Way,
    as_text,
    check,
    collective_of,
    collectives,
    is_written,
    phases_of,
    piece_bounds,
    sums,
)
from .halves import halves, own_pieces
from .player import LaidPhase, collective_ends_ps, laid, laid_out

__all__ = [
    "Collective",
    "CollectiveError",
    "Goal",
    "LaidPhase",
    "Phase",
    "Round",
    "Step",
    "Way",
    "as_text",
    "check",
    "collective_ends_ps",
    "collective_of",
    "collectives",
    "halves",
    "is_written",
    "laid",
    "laid_out",
    "own_pieces",
    "phases_of",
    "piece_bounds",
    "sums",
]
