"""A timeline in Chrome's trace event format, as Perfetto (https://ui.perfetto.dev) opens it.

A device is a process, and a lane a thread. Times are in µs, as the format says; arguments have them exactly.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from typing import Any

from ..common import WholeFile
from .spans import Flow, Lane, Span, Timeline

Event = dict[str, Any]


def write_trace(path: str | os.PathLike[str], timeline: Timeline) -> None:
    """Write a timeline's spans, and the flows between them, to a file, which is put in place when it is whole.

    Raises:
        InputError: the file cannot be written.
    """
    out = path if isinstance(path, WholeFile) else trace_file(path)
    with out, out.building() as file:
        # Without `displayTimeUnit`: where it is ns, some versions of Perfetto take all times for ns.
        file.write(b'{"traceEvents": [\n')
        for number, event in enumerate(events_of(timeline)):
            file.write(((",\n" if number else "") + json.dumps(event)).encode())
        file.write(b"\n]}\n")


def trace_file(path: str | os.PathLike[str]) -> WholeFile:
    """Return a file for a trace.

    Raises:
        InputError: it cannot be written.
    """
    return WholeFile(path, "trace", "run.json")


def events_of(timeline: Timeline) -> Iterator[Event]:
    """Yield all events of a trace: names, slices, and flows, each as a start and an end with the same id."""
    threads = {lane: {"pid": lane.device + 1, "tid": number} for number, lane in enumerate(timeline.lanes, 1)}
    for device, name in enumerate(timeline.devices):  # process 0 is that of the operating system
        yield from _named({"pid": device + 1}, "process", name, device + 1)
    for lane, thread in threads.items():
        yield from _named(thread, "thread", lane.title, thread["tid"])
    for span in timeline.spans:
        yield _slice(span, threads[span.lane], timeline.micro_ps)
    for number, flow in enumerate(timeline.flows, 1):
        yield from _arrow(flow, number, threads, timeline.micro_ps)


def _named(owner: Event, kind: str, name: str, place: int) -> Iterator[Event]:
    """Yield the events that give a process or a thread its name, and its place among others."""
    yield {"ph": "M", **owner, "name": f"{kind}_name", "args": {"name": name}}
    yield {"ph": "M", **owner, "name": f"{kind}_sort_index", "args": {"sort_index": place}}


def _slice(span: Span, thread: Event, micro_ps: int) -> Event:
    start_ps, end_ps = (_shown_ps(time_ps, micro_ps) for time_ps in (span.start_ps, span.end_ps))
    return {
        "ph": "X",
        **thread,
        "ts": micros(start_ps),
        "dur": micros(end_ps - start_ps),
        "name": span.label,
        "cat": span.category,
        "args": span.args,
    }


def _arrow(flow: Flow, number: int, threads: Mapping[Lane, Event], micro_ps: int) -> Iterator[Event]:
    same = {"id": number, "name": "feeds", "cat": "flow"}
    yield {"ph": "s", **threads[flow.source], "ts": micros(_shown_ps(flow.leaves_ps, micro_ps)), **same}
    yield {"ph": "f", "bp": "e", **threads[flow.target], "ts": micros(_shown_ps(flow.enters_ps, micro_ps)), **same}


def _shown_ps(time_ps: int, micro_ps: int) -> int:
    """Return the time that a trace has, in which `micro_ps` are a microsecond."""
    return time_ps * 10**6 // micro_ps


def micros(time_ps: int) -> float:
    """Return a time in µs from which 1000 µs are never cut to one nanosecond less, as Perfetto would.

    It keeps nanoseconds and cuts what is below; 4.035 µs times 1000 is 4034.999 in floating point. A slice that
    begins where the one before ends must not begin before it.
    """
    time_us = time_ps / 1_000_000
    while int(time_us * 1000) < time_ps // 1000:
        time_us = math.nextafter(time_us, math.inf)
    return time_us
