"""`gpipe`: on GPUs."""

from __future__ import annotations

from ..formulas import all_forward_first
from ..machine import Machine
from ._scheduled import scheduled

GPIPE = scheduled("gpipe", Machine(), all_forward_first)
