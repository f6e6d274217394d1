"""`interleaved`: on GPUs."""

from __future__ import annotations

from ..formulas import interleaved_form
from ..machine import Machine
from ._scheduled import scheduled

INTERLEAVED = scheduled("interleaved", Machine(), interleaved_form)
