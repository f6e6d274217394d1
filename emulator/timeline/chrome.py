"""A timeline in Chrome's trace event format, as Perfetto (https://ui.perfetto.dev) opens it.

A device is a process, and a lane a thread. Times are in µs, as the format says; arguments have them exactly, in ps.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from typing import Any

from ..common import WholeFile
from .flows import Flow, flows_of
from .lanes import ERROR_PATHS, FORWARD_PATHS, Lane, LaneKind
from .span import Level, Span
from .timeline import Timeline

Event = dict[str, Any]


def write_trace(path: str | os.PathLike[str], timeline: Timeline, level: Level) -> None:
    """Write a timeline's slices, and the flows between them, to a file, which is put in place when it is whole.

    Raises:
        InputError: the file cannot be written.
    """
    write_events(path, events_of(timeline, level))


def write_events(path: str | os.PathLike[str], events: Iterator[Event]) -> None:
    """Write the events of a trace to a file, which is put in place when it is whole.

    Raises:
        InputError: the file cannot be written.
    """
    out = path if isinstance(path, WholeFile) else trace_file(path)
    with out, out.building() as file:
        # Without `displayTimeUnit`: where it is ns, some versions of Perfetto take all times for ns.
        file.write(b'{"traceEvents": [\n')
        file.writelines(_lines(events))
        file.write(b"\n]}\n")


def trace_file(path: str | os.PathLike[str]) -> WholeFile:
    """Return a file for a trace.

    Raises:
        InputError: it cannot be written.
    """
    return WholeFile(path, "trace", "run.json")


def _lines(events: Iterator[Event]) -> Iterator[bytes]:
    for number, event in enumerate(events):
        yield ((",\n" if number else "") + json.dumps(event)).encode()


def events_of(timeline: Timeline, level: Level) -> Iterator[Event]:
    """Yield all events of a trace: names, slices, and flows, each as a start and an end with the same id."""
    threads = {lane.resource: _thread(lane, number) for number, lane in enumerate(timeline.lanes, 1)}
    for device in range(timeline.course.plan.devices):
        yield from named({"pid": _pid(device)}, "process", f"device {device} ({timeline.board(device)})", _pid(device))
    for number, lane in enumerate(timeline.lanes, 1):
        yield from named(threads[lane.resource], "thread", lane.title, number)
    for lane in timeline.lanes:
        for span in timeline.spans[lane.resource]:
            for each in span.at(level):
                yield {"ph": "X", **threads[lane.resource], **_slice(timeline, each)}
    for number, flow in enumerate(flows_of(timeline, level), 1):
        yield from _arrow(flow, number, threads)


def _pid(device: int) -> int:
    """Return the number of a device's process: 0 is that of the operating system."""
    return device + 1


def _thread(lane: Lane, number: int) -> Event:
    return {"pid": _pid(lane.device), "tid": number}


def named(of: Event, kind: str, name: str, place: int) -> Iterator[Event]:
    """Yield the events that give a process or a thread its name, and its place among others."""
    yield {"ph": "M", **of, "name": f"{kind}_name", "args": {"name": name}}
    yield {"ph": "M", **of, "name": f"{kind}_sort_index", "args": {"sort_index": place}}


def _slice(timeline: Timeline, span: Span) -> Event:
    name = f"{'sample' if span.lane.counts_samples else 'mini-batch'} {span.number}"
    row = {} if span.row is None else {"row": span.row}
    return {
        "ts": micros(span.start_ps),
        "dur": micros(span.end_ps - span.start_ps),
        "name": name if span.row is None else f"{name}, row {span.row}",
        "cat": span.lane.kind.value,
        "args": {
            **_origin(timeline, span),
            **row,
            **({} if span.bytes is None else {"bytes": span.bytes}),
            "start_ps": span.start_ps,
            "end_ps": span.end_ps,
            "busy_ps": span.busy_ps,
        },
    }


def _origin(timeline: Timeline, span: Span) -> dict[str, int]:
    """Return the sample of a span, its place in the run, and the version of the weights, where these matter."""
    if not span.lane.counts_samples:
        epoch, mini_batch = timeline.course.step_place(span.number)
        return {"epoch": epoch, "mini_batch": mini_batch}
    found = {"sample": span.number, **timeline.course.place(span.number)._asdict()}
    version = _version(timeline, span)
    return found if version is None else {**found, "version": version}


def _version(timeline: Timeline, span: Span) -> int | None:
    """Return the version of the weights with which a span, or what it sends, is computed."""
    lane = span.lane
    used = timeline.versions[lane.device][span.number]
    path = None if lane.key is None else lane.key.path
    if lane.kind is LaneKind.FP or path in FORWARD_PATHS:
        return used.forward
    if lane.kind is LaneKind.EB or path in ERROR_PATHS:
        return used.backward
    return None


def _arrow(flow: Flow, number: int, threads: Mapping[str, Event]) -> Iterator[Event]:
    source, target = flow.source, flow.target
    same = {"id": number, "name": "feeds", "cat": "flow"}
    yield {"ph": "s", **threads[source.lane.resource], "ts": micros(source.start_ps), **same}
    yield {"ph": "f", "bp": "e", **threads[target.lane.resource], "ts": micros(flow.enters_ps), **same}


def micros(time_ps: int) -> float:
    """Return a time in µs from which 1000 µs are never cut to one nanosecond less, as Perfetto would.

    It keeps nanoseconds and cuts what is below; 4.035 µs times 1000 is 4034.999 in floating point. A slice that
    begins where the one before ends must not begin before it.
    """
    time_us = time_ps / 1_000_000
    while int(time_us * 1000) < time_ps // 1000:
        time_us = math.nextafter(time_us, math.inf)
    return time_us
