"""`1f1b-as`: 1F1B on accelerators that send while they compute (BaPipe, section III-C, Fig. 3a)."""

from __future__ import annotations

from ..formulas import one_by_one
from ..machine import Machine, Transport
from ..shape import PipelineKind, Shape
from ..warm_ups import warm_ups
from ._by_turns import by_turns


def _warm_ups(shape: Shape) -> tuple[int, ...]:
    return warm_ups("N-i+1", shape.devices, shape.micro_batches)


AS_1F1B = PipelineKind(
    "1f1b-as",
    "one forward, one backward, communication hidden",
    Machine(transport=Transport.HIDDEN),
    by_turns("1f1b-as"),
    one_by_one,
    _warm_ups,
)
