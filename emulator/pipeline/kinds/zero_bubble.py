"""`zero-bubble`: 1F1B whose parameter gradients fill the bubbles, with its memory: H1 (Qi et al., ICLR 2024)."""

from __future__ import annotations

from ...schedule import zero_bubble
from ..formulas import zero_bubble_form
from ..machine import Backward, Machine
from ..shape import PipelineKind

ZERO_BUBBLE = PipelineKind(
    "zero-bubble",
    "one forward, one backward, late parameter gradients fill bubbles",
    Machine(backward=Backward.SPLIT),
    lambda shape: zero_bubble(shape.epoch),
    zero_bubble_form,
)
