"""`fbp-as`: F and B in parallel, as FPDeep has them (BaPipe, section III-C, Fig. 3b)."""

from __future__ import annotations

from ..machine import Engines, Machine, Transport
from ._by_turns import by_turns

FBP_AS = by_turns(
    "fbp-as",
    "forward and backward side by side, communication hidden",
    Machine(Engines.SHARED, Transport.HIDDEN),
    "2(N-i+1)",
)
