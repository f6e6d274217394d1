"""`gpipe`: all forward, then all backward (Huang et al., NeurIPS 2019)."""

from __future__ import annotations

from ...schedule import schedules
from ..formulas import all_forward_first
from ..machine import Machine
from ..shape import PipelineKind

_TRAINED = schedules()["gpipe"]

GPIPE = PipelineKind(
    "gpipe", _TRAINED.summary, Machine(), lambda shape: _TRAINED.generate(shape.epoch), all_forward_first
)
