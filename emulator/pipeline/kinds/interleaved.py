"""`interleaved`: 1F1B with several stages on each device (Narayanan et al., SC 2021)."""

from __future__ import annotations

from ...schedule import interleaved
from ..formulas import interleaved_form
from ..machine import Machine
from ..shape import PipelineKind

INTERLEAVED = PipelineKind(
    "interleaved",
    "one forward, one backward, several stages on each device",
    Machine(),
    lambda shape: interleaved(shape.epoch, shape.chunks),
    interleaved_form,
    interleaves=True,
)
