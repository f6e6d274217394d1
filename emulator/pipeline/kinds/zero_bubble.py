"""`zero-bubble`: on devices whose errors leave before W."""

from __future__ import annotations

from ..formulas import zero_bubble_form
from ..machine import Backward, Machine
from ._scheduled import scheduled

ZERO_BUBBLE = scheduled("zero-bubble", Machine(backward=Backward.SPLIT), zero_bubble_form)
