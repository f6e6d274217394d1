"""`1f1b-so`: 1F1B on GPUs with a doubled warm-up (BaPipe, section III-C, Fig. 4b)."""

from __future__ import annotations

from ..formulas import one_by_one
from ..machine import Machine
from ..shape import PipelineKind, Shape
from ..warm_ups import warm_ups
from ._by_turns import by_turns


def _warm_ups(shape: Shape) -> tuple[int, ...]:
    return warm_ups("2(N-i+1)", shape.devices, shape.micro_batches)


SO_1F1B = PipelineKind(
    "1f1b-so",
    "one forward, one backward, doubled warm-up overlaps communication",
    Machine(),
    by_turns("1f1b-so"),
    one_by_one,
    _warm_ups,
)
