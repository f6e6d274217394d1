"""A mini-batch of a pipeline on the timeline: its bubble, memory and critical path, and the smallest
warm-ups with which it is as fast as it can be.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from fractions import Fraction

from ..common import InputError
from ..schedule import (
    ClosedForm,
    Engines,
    Fold,
    Kind,
    Machine,
    PipelineKind,
    Schedule,
    Shape,
    StageCosts,
    warm_up,
    weight_copies,
)
from .board import Step, work_ps
from .timeline import Sent, Timed, run_timeline


@dataclasses.dataclass(frozen=True)
class PipelineResult:
    """A mini-batch in time.

    `bubble` is the idle share of all devices' time. By device: `features` is the most micro-batches
    whose features are there (a chunk's share of them where a device has several), `weight_copies`
    the most versions of the weights, without their gradients, `busy_ps` the work. `send_peak` is
    the rate at which a device must send to hide communication, in micro-batches' features (or
    errors) per ps. `critical_path` are the actions that released one another, in order.
    """

    timed: Sequence[Timed]
    sent: Sequence[Sent]
    makespan_ps: int
    bubble: Fraction
    features: tuple[Fraction, ...]
    weight_copies: tuple[int, ...]
    busy_ps: tuple[int, ...]
    send_peak: Fraction
    critical_path: tuple[Timed, ...]

    @functools.cached_property
    def recomputes(self) -> bool:
        """Whether R is among the actions."""
        return any(action.step.kind is Kind.RECOMPUTE for action in self.timed)

    @functools.cached_property
    def offloads(self) -> bool:
        """Whether O and L are among the actions."""
        return any(action.step.kind is Kind.OFFLOAD for action in self.timed)

    @property
    def busy(self) -> tuple[Fraction, ...]:
        """By device, the share of the time in which it works."""
        return tuple(Fraction(busy_ps, self.makespan_ps) for busy_ps in self.busy_ps)


def time_pipeline(
    schedule: Schedule, costs: Sequence[StageCosts], machine: Machine
) -> PipelineResult:
    """Time a schedule, as `run_timeline` does, and return what follows.

    Raises:
        InputError: the schedule is incomplete or deadlocks, or the costs do not fit it.
    """
    timeline = run_timeline(schedule, costs, machine)
    timed, sent = timeline.timed, timeline.sent
    devices, batches = schedule.devices, len(schedule.micro_batches)
    makespan = max(action.end_ps for action in timed)
    by_device: list[list[Timed]] = [[] for _ in range(devices)]
    for action in timed:
        by_device[action.device].append(action)
    fold, programs = schedule.fold, schedule.programs(range(devices))
    busy = [0] * devices
    for stage in range(fold.count):
        busy[fold.device(stage)] += costs[stage].work_ps * batches
    for action in timed:
        if action.step.kind is Kind.RECOMPUTE:
            busy[action.device] += costs[action.step.stage].recompute_ps
    kept = (_kept(actions, machine.frees_features) for actions in by_device)
    send_peak = max(_send_peak(costs, device, fold, machine) for device in range(devices))
    copies = tuple(weight_copies(programs[device]) for device in range(devices))
    return PipelineResult(
        timed=timed,
        sent=sent,
        makespan_ps=makespan,
        bubble=1 - Fraction(sum(busy), devices * makespan),
        features=tuple(Fraction(count, fold.chunks) for count in kept),
        weight_copies=copies,
        busy_ps=tuple(busy),
        send_peak=send_peak,
        critical_path=_critical_path(timed),
    )


def schedule_of(kind: PipelineKind, shape: Shape) -> tuple[Schedule, ClosedForm | None]:
    """Return the schedule that a kind makes for a shape, and the formula for its time.

    Raises:
        InputError: the shape asks for chunks or warm-ups, and this kind has none.
    """
    if shape.chunks > 1 and kind.chunks == 1:
        raise InputError(
            f"`chunks` = {shape.chunks}: {kind.name} has one stage on each device; try"
            " `interleaved`"
        )
    if shape.warm_ups is not None and kind.warm_ups is None:
        raise InputError(
            f"`warm_up`: {kind.name} has a fixed order; kinds of 1F1B and FBP take a warm-up"
        )
    if shape.warm_ups is None:
        shape = dataclasses.replace(shape, warm_ups=warm_ups_of(kind, shape))
    epoch = dataclasses.replace(shape.epoch, batch=kind.mini_batch(shape))
    return kind.schedule_of(epoch), kind.closed_form(shape)


def time_shape(kind: PipelineKind, shape: Shape) -> PipelineResult:
    """Time the schedule that a kind makes for a shape.

    Raises:
        InputError: as `schedule_of` and `time_pipeline`.
    """
    schedule, _ = schedule_of(kind, shape)
    return time_pipeline(schedule, shape.costs, shape.machine)


def warm_ups_of(kind: PipelineKind, shape: Shape) -> tuple[int, ...] | None:
    """Return each device's warm-up forwards under a kind; None where it has none to choose."""
    if kind.searches:
        return smallest_warm_ups(shape)
    return None if kind.warm_ups is None else kind.warm_ups(shape.devices)


def least_time_ps(shape: Shape) -> int:
    """Return a bound in ps that no order of actions is below, where messages are stored and B
    includes PG.

    max over stages i of the sum over j < i of (F_j + B_j + 2 SR_j), plus M (F_i + B_i): a stage
    begins no sooner than the first micro-batch has come, and its last B has to go all the way back.
    2 SR_j is features and errors.
    """
    best = ahead = 0
    for costs in shape.costs:
        best = max(best, ahead + shape.micro_batches * costs.work_ps)
        ahead += (
            costs.work_ps + costs.transfer_ps + costs.sent_errors_ps + 2 * shape.machine.latency_ps
        )
    return best


def smallest_warm_ups(shape: Shape) -> tuple[int, ...]:
    """Return the smallest warm-up forwards with which the mini-batch takes no longer than
    `least_time_ps`.

    Those tried are N-i+1 + ceil(k (N-i) / (N-1)), k from 0 on, up to N-i more; where none reaches
    the bound, the smallest of those that come closest is returned. Each is run on the timeline
    engine.
    """
    devices, bound = shape.devices, least_time_ps(shape)
    best, best_ps = (1,) * devices, -1
    for extra in range(devices + (devices - 1)):
        ahead = range(devices - 1, -1, -1)
        # `max`: a single device would divide by N - 1 = 0.
        tried = tuple(behind + 1 + -(-extra * behind // max(devices - 1, 1)) for behind in ahead)
        schedule = warm_up("1f1b-min", shape.epoch, tried)
        end_ps = max(
            timed.end_ps for timed in run_timeline(schedule, shape.costs, shape.machine).timed
        )
        if best_ps < 0 or end_ps < best_ps:
            best, best_ps = tried, end_ps
        if best_ps <= bound:
            break
    return best


def _kept(timed: Sequence[Timed], last: Kind) -> int:
    """Return the most micro-batches between the start of F, or of an R of theirs, and the end of
    the action that needs their features last; between the end of O and the start of L not.

    Of what ends and starts in one moment, the ends come first.
    """
    begins = {a.step: a.start_ps for a in timed if a.step.kind is Kind.FORWARD}
    for action in timed:
        if action.step.kind is Kind.RECOMPUTE:
            begins[action.step._replace(kind=Kind.FORWARD)] = action.start_ps
    loads = (action.start_ps for action in timed if action.step.kind is Kind.LOAD)
    starts = sorted([*begins.values(), *loads])
    frees = (last, Kind.OFFLOAD)
    ends = sorted(action.end_ps for action in timed if action.step.kind in frees)
    most = freed = 0
    for begun, start_ps in enumerate(starts, 1):
        while freed < len(ends) and ends[freed] <= start_ps:
            freed += 1
        most = max(most, begun - freed)
    return most


def _send_peak(costs: Sequence[StageCosts], device: int, fold: Fold, machine: Machine) -> Fraction:
    """Return the rate at which a device must send what it computes while it computes it, in
    messages per ps.

    Of actions that take turns, each hides its own message. Where F and B run side by side, both
    hide both.
    """
    peak, messages, work = Fraction(0), 0, 0
    for stage in fold.stages(device):
        work += costs[stage].work_ps
        for kind, to in ((Kind.FORWARD, stage + 1), (Kind.BACKWARD, stage - 1)):
            if 0 <= to < len(costs) and fold.device(to) != device:
                messages += 1
                alone = work_ps(costs[stage], kind, machine)
                peak = max(peak, Fraction(1, alone)) if alone else peak
    return peak if machine.engines is Engines.TURNS else Fraction(messages, work)


def _critical_path(timed: Sequence[Timed]) -> tuple[Timed, ...]:
    by_step: dict[Step, Timed] = {action.step: action for action in timed}
    # Of actions that end last in one moment, that of the first device.
    at: Timed | None = max(timed, key=lambda action: (action.end_ps, -action.device))
    path: list[Timed] = []
    while at is not None:
        path.append(at)
        at = by_step[at.released_by] if at.released_by is not None else None
    return tuple(reversed(path))
