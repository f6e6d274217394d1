"""What a timeline says: time, bubble, memory, messages, the critical path."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from fractions import Fraction

from ..schedule import Kind, Schedule, weight_copies
from .costs import StageCosts
from .engine import run_course
from .machine import Engines, Machine
from .program import Step, work_ps
from .run import Sent, Timed
from .shape import PipelineKind, Shape


@dataclasses.dataclass(frozen=True)
class PipelineResult:
    """A mini-batch in time.

    `bubble` is the idle share of the device with the most work. By device: `features` is the most micro-batches whose
    features are kept (a chunk's share of them where a device has several), `weight_copies` the most versions of the
    weights, without their gradients, `busy_ps` the work. `send_peak` is the rate at which a device must send to hide
    communication, in micro-batches' features (or errors) per ps. `critical_path` are the actions that
    released one another, from the first to the last.
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


def time_pipeline(schedule: Schedule, costs: Sequence[StageCosts], machine: Machine) -> PipelineResult:
    """Time a schedule, as `run_timeline` does, and return what follows.

    Raises:
        InputError: the schedule is incomplete or deadlocks, or the costs do not fit it.
    """
    timed, sent = run_course(schedule, costs, machine)
    devices, count = schedule.devices, len(schedule.micro_batches)
    makespan = max(each.end_ps for each in timed)
    by_device: list[list[Timed]] = [[] for _ in range(devices)]
    for each in timed:
        by_device[each.device].append(each)
    busy = tuple(sum(each.work_ps for each in costs[device::devices]) * count for device in range(devices))
    chunks, programs = len(costs) // devices, schedule.programs(range(devices))
    return PipelineResult(
        timed=timed,
        sent=sent,
        makespan_ps=makespan,
        bubble=Fraction(makespan - max(busy), makespan),
        features=tuple(Fraction(_kept(each, machine.frees_features), chunks) for each in by_device),
        weight_copies=tuple(weight_copies(programs[device]) for device in range(devices)),
        busy_ps=busy,
        send_peak=max(_send_peak(costs, device, devices, machine) for device in range(devices)),
        critical_path=_critical_path(timed),
    )


def time_shape(kind: PipelineKind, shape: Shape) -> PipelineResult:
    """Time the schedule that a kind makes for a shape.

    Raises:
        InputError: as `PipelineKind.schedule` and `time_pipeline`.
    """
    schedule, _ = kind.schedule(shape)
    return time_pipeline(schedule, shape.costs, shape.machine)


def _peak(changes: list[tuple[int, Fraction]]) -> Fraction:
    """Return the largest sum of changes in order of time; those of one moment are taken with the losses first."""
    now = peak = Fraction(0)
    for _, change in sorted(changes):
        now += change
        peak = max(peak, now)
    return peak


def _kept(timed: Sequence[Timed], last: Kind) -> Fraction:
    """Return the most micro-batches between the start of F and the end of the action that needs its features last."""
    changes = [(each.start_ps, Fraction(1)) for each in timed if each.step.kind is Kind.FORWARD]
    return _peak(changes + [(each.end_ps, Fraction(-1)) for each in timed if each.step.kind is last])


def _send_peak(costs: Sequence[StageCosts], device: int, devices: int, machine: Machine) -> Fraction:
    """Return the rate at which a device must send what it computes while it computes it, in messages per ps.

    Of actions that take turns, each hides its own message. Where F and B run side by side, both hide both.
    """
    peak, messages, work = Fraction(0), 0, 0
    for stage in range(device, len(costs), devices):
        work += costs[stage].work_ps
        for kind, to in ((Kind.FORWARD, stage + 1), (Kind.BACKWARD, stage - 1)):
            if 0 <= to < len(costs) and to % devices != device:
                messages += 1
                alone = work_ps(costs[stage], kind, machine)
                peak = max(peak, Fraction(1, alone)) if alone else peak
    return peak if machine.engines is Engines.TURNS else Fraction(messages, work)


def _critical_path(timed: Sequence[Timed]) -> tuple[Timed, ...]:
    by_step: dict[Step, Timed] = {each.step: each for each in timed}
    at: Timed | None = max(timed, key=lambda each: (each.end_ps, -each.device))
    path: list[Timed] = []
    while at is not None:
        path.append(at)
        at = by_step[at.released_by] if at.released_by is not None else None
    return tuple(reversed(path))
