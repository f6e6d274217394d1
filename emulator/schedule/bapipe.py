"""BaPipe's schedules: one forward, one backward, on accelerators and on GPUs (BaPipe, section III-C, Figs. 3 and 4).

Device i of N, from 1 on, does N-i+1 forwards ahead (`1f1b-as`, `1f1b-sno`) or twice as many (`1f1b-so`, whose messages
then come while a GPU works; `fbp-as`, whose F and B share their multipliers, as FPDeep has them). Accelerators send
while they compute; messages of GPUs wait for their action. `1f1b-min` has the fewest forwards ahead that overlap all
communication, found by trying on the timeline.
"""

from __future__ import annotations

from .action import Schedule
from .formulas import equal_costs, one_by_one, overlapped
from .kind import PipelineKind
from .machine import Engines, Machine, Transport
from .shape import ClosedForm, EpochShape, Shape
from .warm_up import doubled, single, warm_up


def as_1f1b(epoch: EpochShape) -> Schedule:
    """Return the schedule with N-i+1 warm-up forwards on device i of N (Fig. 3a)."""
    return warm_up("1f1b-as", epoch, epoch.warm_ups or single(epoch.devices))


def fbp_as(epoch: EpochShape) -> Schedule:
    """Return the schedule with 2(N-i+1) warm-up forwards on device i of N (Fig. 3b)."""
    return warm_up("fbp-as", epoch, epoch.warm_ups or doubled(epoch.devices))


def sno_1f1b(epoch: EpochShape) -> Schedule:
    """Return the schedule with N-i+1 warm-up forwards on device i of N (Fig. 4a)."""
    return warm_up("1f1b-sno", epoch, epoch.warm_ups or single(epoch.devices))


def so_1f1b(epoch: EpochShape) -> Schedule:
    """Return the schedule with 2(N-i+1) warm-up forwards on device i of N (Fig. 4b)."""
    return warm_up("1f1b-so", epoch, epoch.warm_ups or doubled(epoch.devices))


def min_1f1b(epoch: EpochShape) -> Schedule:
    """Return the schedule with the epoch's warm-up forwards."""
    return warm_up("1f1b-min", epoch, epoch.warm_ups)


def full_overlap(shape: Shape) -> ClosedForm | None:
    """Return the form for warm-ups that hide all messages but those that fill and drain the pipeline."""
    costs = equal_costs(shape)
    if costs is None or shape.machine != Machine():
        return one_by_one(shape)
    return overlapped(shape, costs, "SR <= (F + B) / 2", 2 * costs.transfer_ps <= costs.work_ps)


AS_1F1B = PipelineKind(
    "1f1b-as",
    as_1f1b,
    "one forward, one backward, communication hidden",
    drains=True,
    repeats=True,
    warm_ups=single,
    machine=Machine(transport=Transport.HIDDEN),
)
FBP_AS = PipelineKind(
    "fbp-as",
    fbp_as,
    "forward and backward side by side, communication hidden",
    drains=True,
    repeats=True,
    warm_ups=doubled,
    machine=Machine(Engines.SHARED, Transport.HIDDEN),
)
SNO_1F1B = PipelineKind(
    "1f1b-sno",
    sno_1f1b,
    "one forward, one backward, communication not overlapped",
    drains=True,
    repeats=True,
    warm_ups=single,
    overlaps=False,
)
SO_1F1B = PipelineKind(
    "1f1b-so",
    so_1f1b,
    "one forward, one backward, doubled warm-up overlaps communication",
    drains=True,
    repeats=True,
    warm_ups=doubled,
)
MIN_1F1B = PipelineKind(
    "1f1b-min",
    min_1f1b,
    "one forward, one backward, smallest warm-up that overlaps communication",
    drains=True,
    repeats=True,
    warm_ups=single,
    closed_form=full_overlap,
    searches=True,
)
