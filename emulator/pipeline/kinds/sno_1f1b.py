"""`1f1b-sno`: 1F1B on GPUs, whose messages wait for their action (BaPipe, section III-C, Fig. 4a)."""

from __future__ import annotations

from ..machine import Machine
from ._by_turns import by_turns

SNO_1F1B = by_turns(
    "1f1b-sno",
    "one forward, one backward, communication not overlapped",
    Machine(),
    "N-i+1",
)
