"""The timeline engine: schedule, costs and machine in, start and end of every action and message out."""

from __future__ import annotations

from collections.abc import Sequence

from ..common import InputError
from ..schedule import Schedule
from .costs import StageCosts
from .machine import Machine, Transport
from .program import tasks_of
from .run import Course, Run, Timed
from .streamed import StreamedRun


def run_timeline(schedule: Schedule, costs: Sequence[StageCosts], machine: Machine) -> list[Timed]:
    """Return the actions of a schedule by their start, then by device.

    Args:
        schedule: the schedule; its updates take no time.
        costs: those of each stage; stage c N + d is chunk c of device d of N.
        machine: how devices and links work.

    Raises:
        InputError: the schedule is incomplete or deadlocks, with device and action; or the costs do not fit it.
    """
    return run_course(schedule, costs, machine).timed


def run_course(schedule: Schedule, costs: Sequence[StageCosts], machine: Machine) -> Course:
    """Return the actions of a schedule, as `run_timeline` does, and the messages that they send.

    Raises:
        InputError: as `run_timeline`.
    """
    tasks = tasks_of(schedule, costs, machine)
    kind = StreamedRun if machine.transport is Transport.STREAMED else Run
    run = kind(tasks, costs, machine)
    run.work_off()
    stuck = [task for device in run.devices for task in device.next_tasks()]
    if stuck:
        waits = "; ".join(f"device {task.device} waits at {task.name} for {run.missing(task)}" for task in stuck)
        raise InputError(f"schedule {schedule.name}: deadlock: {waits}")
    run.timed.sort(key=lambda timed: (timed.start_ps, timed.device, timed.end_ps))
    run.sent.sort(key=lambda sent: (sent.start_ps, sent.sender, sent.receiver))
    return Course(run.timed, run.sent)
