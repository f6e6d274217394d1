"""`1f1b-so`: 1F1B on GPUs with a doubled warm-up (BaPipe, section III-C, Fig. 4b)."""

from __future__ import annotations

from ..machine import Machine
from ._by_turns import by_turns

SO_1F1B = by_turns(
    "1f1b-so", "one forward, one backward, doubled warm-up overlaps communication", Machine(), "2(N-i+1)"
)
