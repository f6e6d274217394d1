"""`1f1b-sno`: 1F1B on GPUs, whose messages wait for their action (BaPipe, section III-C, Fig. 4a)."""

from __future__ import annotations

from ..formulas import one_by_one
from ..machine import Machine
from ..shape import PipelineKind, Shape
from ..warm_ups import warm_ups
from ._by_turns import by_turns


def _warm_ups(shape: Shape) -> tuple[int, ...]:
    return warm_ups("N-i+1", shape.devices, shape.micro_batches)


SNO_1F1B = PipelineKind(
    "1f1b-sno",
    "one forward, one backward, communication not overlapped",
    Machine(),
    by_turns("1f1b-sno"),
    one_by_one,
    _warm_ups,
)
