"""`zero-bubble`: H1, 1F1B whose W fill the pipeline's bubbles (Qi et al., ICLR 2024, section 2.2).

Errors leave before the parameter gradients are computed. The further down the chain, the later W
is, so that no device keeps the features of more micro-batches than the first one under 1F1B.
"""

from __future__ import annotations

from .action import Schedule
from .bapipe import single, warm_up
from .kind import PipelineKind
from .shape import Backward, ClosedForm, Engines, EpochShape, Machine, Shape, Transport, equal_costs


def zero_bubble(epoch: EpochShape) -> Schedule:
    """Return the schedule of 1F1B in which W of device i is late by i micro-batches."""
    return warm_up("zero-bubble", epoch, single(epoch.devices), late=range(epoch.devices))


def zero_bubble_form(shape: Shape) -> ClosedForm | None:
    """Return the form for zero-bubble H1: M (F + EB + PG) + (N - 1) (F + EB - PG)."""
    costs, machine = equal_costs(shape), shape.machine
    if (
        costs is None
        or costs.transfer_ps
        or machine.latency_ps
        or machine.engines is not Engines.TURNS
    ):
        return None
    if machine.backward is Backward.FUSED or machine.transport is Transport.STREAMED:
        return None
    work = costs.work_ps
    # With work = F + EB + PG, F + EB - PG is work - 2 PG.
    time = shape.micro_batches * work + (shape.devices - 1) * (work - 2 * costs.known_pg_ps)
    exact = (
        costs.known_pg_ps <= min(costs.forward_ps, costs.eb_ps)
        and shape.micro_batches >= shape.devices
    )
    return ClosedForm(time, "PG <= min(F, EB), M >= N", exact or shape.devices == 1)


ZERO_BUBBLE = PipelineKind(
    "zero-bubble",
    zero_bubble,
    "one forward, one backward, late parameter gradients fill bubbles",
    drains=True,
    repeats=True,
    machine=Machine(backward=Backward.SPLIT),
    closed_form=zero_bubble_form,
    equal_stages=True,
)
