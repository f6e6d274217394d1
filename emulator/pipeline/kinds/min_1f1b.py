"""`1f1b-min`: 1F1B with the smallest warm-up that overlaps all communication, found by trying on the timeline."""

from __future__ import annotations

from ...schedule import Schedule, warm_up
from ..formulas import full_overlap
from ..machine import Machine
from ..search import smallest_warm_ups
from ..shape import PipelineKind, Shape


def _generate(shape: Shape) -> Schedule:
    return warm_up("1f1b-min", shape.epoch, shape.epoch.warm_ups)


MIN_1F1B = PipelineKind(
    "1f1b-min",
    "one forward, one backward, smallest warm-up that overlaps communication",
    Machine(),
    _generate,
    full_overlap,
    smallest_warm_ups,
)
