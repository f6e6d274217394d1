"""`1f1b-as`: 1F1B on accelerators that send while they compute (BaPipe, section III-C, Fig. 3a)."""

from __future__ import annotations

from ..machine import Machine, Transport
from ._by_turns import by_turns

AS_1F1B = by_turns(
    "1f1b-as", "one forward, one backward, communication hidden", Machine(transport=Transport.HIDDEN), "N-i+1"
)
