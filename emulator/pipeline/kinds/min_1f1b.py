"""`1f1b-min`: 1F1B with the smallest warm-up that overlaps all communication, found by trying."""

from __future__ import annotations

from ..formulas import full_overlap
from ..machine import Machine
from ..search import smallest_warm_ups
from ._by_turns import by_turns

MIN_1F1B = by_turns(
    "1f1b-min",
    "one forward, one backward, smallest warm-up that overlaps communication",
    Machine(),
    smallest_warm_ups,
    full_overlap,
)
