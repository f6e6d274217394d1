"""`fbp-as`: F and B in parallel, as FPDeep has them (BaPipe, section III-C, Fig. 3b)."""

from __future__ import annotations

from ..formulas import one_by_one
from ..machine import Engines, Machine, Transport
from ..shape import PipelineKind, Shape
from ..warm_ups import warm_ups
from ._by_turns import by_turns


def _warm_ups(shape: Shape) -> tuple[int, ...]:
    return warm_ups("2(N-i+1)", shape.devices, shape.micro_batches)


FBP_AS = PipelineKind(
    "fbp-as",
    "forward and backward side by side, communication hidden",
    Machine(Engines.SHARED, Transport.HIDDEN),
    by_turns("fbp-as"),
    one_by_one,
    _warm_ups,
)
