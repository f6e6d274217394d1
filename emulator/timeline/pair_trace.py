"""A mini-batch on a GPU and an FPGA in Chrome's trace event format: a process for each device, a thread for each
resource. A link is below the device that sends; while it carries values of steps, it has a slice of their name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from ..common import InputError, WholeFile
from ..pair import Resource, Timed
from ..plan import PairPlan
from .chrome import Event, micros, named, trace_file, write_events

_DEVICES = {Resource.GPU: 0, Resource.TO_FPGA: 0, Resource.FPGA: 1, Resource.TO_GPU: 1}
"""The device below which each resource stands."""


def asked_pair_trace(
    trace: str | os.PathLike[str] | None = None, trace_level: str | None = None, trace_samples: object = None
) -> WholeFile | None:
    """Return the file of a pair's trace, which is that of a mini-batch; None without one.

    Raises:
        InputError: a level or samples are given, or the file cannot be written.
    """
    for key, value in (("trace_level", trace_level), ("trace_samples", trace_samples)):
        if value is not None:
            raise InputError(f"`{key}` = {value!r}: the trace of a pair has the tasks of a mini-batch; leave it out")
    return None if trace is None else trace_file(trace)


def write_pair_trace(path: str | os.PathLike[str], plan: PairPlan) -> None:
    """Write the tasks of a mini-batch, what links carry meanwhile, and arrows from tasks to those that wait for them.

    Raises:
        InputError: the file cannot be written.
    """
    write_events(path, _events(plan))


def _events(plan: PairPlan) -> Iterator[Event]:
    boards = [board.name for board in (plan.pair.gpu, plan.pair.fpga) if board is not None]
    for device, board in enumerate(boards):
        yield from named({"pid": device + 1}, "process", f"device {device} ({board})", device + 1)
    for resource in plan.times.busy:
        thread = _thread(resource)
        yield from named(thread, "thread", resource.value, thread["tid"])
    arrows = 0
    for timed in plan.times.timed:
        task = timed.task
        yield _slice(timed, task.resource, timed.end_ps - timed.start_ps)
        for link, busy_ps in task.streams:
            yield _slice(timed, link, busy_ps)
        for other in task.after:
            arrows += 1
            yield from _arrow(arrows, plan.times.timed[other], timed)


def _thread(resource: Resource) -> Event:
    return {"pid": _DEVICES[resource] + 1, "tid": list(Resource).index(resource) + 1}


def _slice(timed: Timed, resource: Resource, busy_ps: int) -> Event:
    task = timed.task
    return {
        "ph": "X",
        **_thread(resource),
        "ts": micros(timed.start_ps),
        "dur": micros(timed.end_ps - timed.start_ps),
        "name": task.name,
        "cat": task.part.value,
        "args": {
            "part": task.part.value,
            "phase": task.phase.value,
            "layer": task.layer,
            "direction": task.direction,
            "start_ps": timed.start_ps,
            "end_ps": timed.end_ps,
            "busy_ps": busy_ps,
        },
    }


def _arrow(number: int, source: Timed, target: Timed) -> Iterator[Event]:
    same = {"id": number, "name": "feeds", "cat": "flow"}
    yield {"ph": "s", **_thread(source.task.resource), "ts": micros(source.start_ps), **same}
    yield {"ph": "f", "bp": "e", **_thread(target.task.resource), "ts": micros(target.start_ps), **same}
