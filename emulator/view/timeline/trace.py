"""A trace: what a user asks for with `--trace`, and a timeline in Chrome's trace event format, as
Perfetto opens it.

In https://ui.perfetto.dev a device is a process, and a lane a thread. Times are in µs, as the
format says; arguments have them exactly.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
import pathlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

from ...common import InputError, WholeFile
from ...plan import ChainPlan
from ...timing import Course
from .actions import ActionRun
from .rows import Level, RowRun
from .samples import DEFAULT_WINDOW, RunSamples, SpanRecorder, Window
from .spans import Chart, Flow, Lane, Span, Timeline

Event = dict[str, Any]


def write_trace(path: str | os.PathLike[str], timeline: Timeline) -> None:
    """Write a timeline's spans, and the flows between them, to a file, which is put in place when
    it is whole.

    Raises:
        InputError: the file cannot be written.
    """
    out = path if isinstance(path, WholeFile) else trace_file(path)
    with out, out.building() as file:
        # Without `displayTimeUnit`: where it is ns, some versions of Perfetto take all times for
        # ns.
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
    """Yield all events of a trace: names, slices, and flows, each as a start and an end with the
    same id.
    """
    threads = {
        lane: {"pid": lane.device + 1, "tid": number}
        for number, lane in enumerate(timeline.lanes, 1)
    }
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


def _arrow(
    flow: Flow, number: int, threads: Mapping[Lane, Event], micro_ps: int
) -> Iterator[Event]:
    same = {"id": number, "name": "feeds", "cat": "flow"}
    yield {
        "ph": "s",
        **threads[flow.source],
        "ts": micros(_shown_ps(flow.leaves_ps, micro_ps)),
        **same,
    }
    yield {
        "ph": "f",
        "bp": "e",
        **threads[flow.target],
        "ts": micros(_shown_ps(flow.enters_ps, micro_ps)),
        **same,
    }


def _shown_ps(time_ps: int, micro_ps: int) -> int:
    """Return the time that a trace has, in which `micro_ps` are a microsecond."""
    return time_ps * 10**6 // micro_ps


def micros(time_ps: int) -> float:
    """Return a time in µs from which 1000 µs are never cut to one nanosecond less, as Perfetto
    would.

    It keeps nanoseconds and cuts what is below; 4.035 µs times 1000 is 4034.999 in floating point.
    A slice that begins where the one before ends must not begin before it.
    """
    time_us = time_ps / 1_000_000
    while int(time_us * 1000) < time_ps // 1000:
        time_us = math.nextafter(time_us, math.inf)
    return time_us


class RecordedRun(Protocol):
    """A run of which a window of samples is recorded and shown."""

    def recorder(self) -> SpanRecorder:
        """Return an observer of the run; each rank needs one."""

    def timeline(self, recorders: Collection[SpanRecorder], level: Level) -> Timeline:
        """Return what the recorders of all ranks have kept."""

    def chart(
        self, recorders: Collection[SpanRecorder], shown: Window, *, all_lanes: bool
    ) -> Chart:
        """Return the chart of the time in which the shown samples are worked on, with all that runs
        then.
        """

    def courses(self, recorders: Collection[SpanRecorder]) -> tuple[Course, ...]:
        """Return what each device keeps over time of the features of the window's samples."""


def recorded_run(samples: RunSamples, window: Window) -> RecordedRun:
    """Return the run of a plan whose boards stream rows, or take actions as a whole."""
    return RowRun(samples, window) if samples.plan.times_rows else ActionRun(samples, window)


@dataclasses.dataclass(frozen=True)
class TraceRequest:
    """A trace of a window of samples, to be written to `path`."""

    path: pathlib.Path
    level: Level
    window: Window

    @classmethod
    def of(
        cls,
        trace: str | os.PathLike[str] | None = None,
        trace_level: str | None = None,
        trace_samples: str | tuple[int, int] | None = None,
    ) -> TraceRequest | None:
        """Return the request of a file, a level and a window, or None without a file.

        Raises:
            InputError: there is no such level, the window is empty, or a level or a window is given
                without a file.
        """
        if trace is None:
            for key, value in (("trace_level", trace_level), ("trace_samples", trace_samples)):
                if value is not None:
                    raise InputError(
                        f"`{key}` = {value!r}: there is no trace; give `trace`, a file such as"
                        " run.json"
                    )
            return None
        return cls(pathlib.Path(trace), _level(trace_level), _window(trace_samples))

    @property
    def written(self) -> str:
        """A line about the trace once it is written."""
        return f"trace in {self.path}; open it with https://ui.perfetto.dev"

    def __enter__(self) -> TraceRequest:
        """Check that the file can be written, and keep others from writing it.

        Raises:
            InputError: it cannot.
        """
        self._file  # noqa: B018 - made and locked now, for `write`
        return self

    @functools.cached_property
    def _file(self) -> WholeFile:
        return trace_file(self.path)

    def __exit__(self, *_: object) -> None:
        """Let others write the file."""
        self._file.close()

    def recorder(self, plan: ChainPlan, samples: int) -> SpanRecorder:
        """Return the observer of a run with `samples` samples in an epoch, over all replicas.

        Raises:
            InputError: the run has no sample of the window, no rows where these are asked for, or
                boards that die.
        """
        plan.needs_all_alive("a trace")
        if self.level is Level.ROW and not plan.times_rows:
            raise InputError(
                "`trace_level` = 'row': these boards take actions as a whole, without rows; leave"
                " it out"
            )
        return self._run(plan, samples).recorder()

    def write(self, plan: ChainPlan, samples: int, recorders: Sequence[SpanRecorder]) -> None:
        """Write the trace from the recorders of all ranks.

        Raises:
            InputError: the file cannot be written.
        """
        write_trace(self._file, self._run(plan, samples).timeline(recorders, self.level))

    def _run(self, plan: ChainPlan, samples: int) -> RecordedRun:
        run = RunSamples.of(plan, samples)
        return recorded_run(run, self.window.within(run.number, "trace_samples"))


def pair_trace(
    trace: str | os.PathLike[str] | None = None,
    trace_level: str | None = None,
    trace_samples: object = None,
) -> WholeFile | None:
    """Return the file of a pair's trace, which is that of a mini-batch; None without one.

    Raises:
        InputError: a level or samples are given, or the file cannot be written.
    """
    for key, value in (("trace_level", trace_level), ("trace_samples", trace_samples)):
        if value is not None:
            raise InputError(
                f"`{key}` = {value!r}: the trace of a pair has the tasks of a mini-batch; leave"
                " it out"
            )
    return None if trace is None else trace_file(trace)


def _level(name: str | None) -> Level:
    names = [level.value for level in Level]
    if name is not None and name not in names:
        raise InputError(f"`trace_level` = {name!r}: is one of {', '.join(names)}")
    return Level(name or Level.SAMPLE)


def _window(samples: str | tuple[int, int] | None) -> Window:
    if samples is None:
        return DEFAULT_WINDOW
    if isinstance(samples, str):
        return Window.parse(samples, "trace_samples")
    return Window.of(*samples, "trace_samples")
