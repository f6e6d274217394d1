"""Collectives as data: steps that say who sends which pieces to whom, checked, carried out, timed."""

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
    phases_of,
    sums,
)
from .numbers import carry_out, piece_bounds
from .player import NO_COSTS, EndCosts, collective_ends_ps

__all__ = [
    "NO_COSTS",
    "Collective",
    "CollectiveError",
    "EndCosts",
    "Goal",
    "Phase",
    "Round",
    "Step",
    "Way",
    "as_text",
    "carry_out",
    "check",
    "collective_ends_ps",
    "collective_of",
    "collectives",
    "phases_of",
    "piece_bounds",
    "sums",
]
