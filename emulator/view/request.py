"""What a user asks for with `--trace` and `timeline`: a recorded run, whatever its boards take, shown in a window."""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
from collections.abc import Collection, Sequence
from typing import Protocol

from ..common import InputError, WholeFile
from ..plan import Plan
from .actions import ActionRun
from .row_run import RowRun
from .rows import Level
from .samples import DEFAULT_WINDOW, RunSamples, SpanRecorder, Window
from .spans import Chart, Timeline
from .trace import trace_file, write_trace


class RecordedRun(Protocol):
    """A run of which a window of samples is recorded and shown."""

    def recorder(self) -> SpanRecorder:
        """Return an observer of the run; each rank needs one."""

    def timeline(self, recorders: Collection[SpanRecorder], level: Level) -> Timeline:
        """Return what the recorders of all ranks have kept."""

    def chart(self, recorders: Collection[SpanRecorder], shown: Window, *, all_lanes: bool) -> Chart:
        """Return the chart of the time in which the shown samples are worked on, with all that runs then."""


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
            InputError: there is no such level, the window is empty, or a level or a window is given without a file.
        """
        if trace is None:
            for key, value in (("trace_level", trace_level), ("trace_samples", trace_samples)):
                if value is not None:
                    raise InputError(f"`{key}` = {value!r}: there is no trace; give `trace`, a file such as run.json")
            return None
        return cls(pathlib.Path(trace), _level(trace_level), _window(trace_samples))

    @property
    def written(self) -> str:
        """A line about the trace once it is written."""
        return f"trace in {self.path}; open it with https://ui.perfetto.dev"

    def check_file(self) -> None:
        """Check that the file can be written, and keep others from writing it.

        Raises:
            InputError: it cannot.
        """
        self._file  # noqa: B018 - made and locked now, for `write`

    @functools.cached_property
    def _file(self) -> WholeFile:
        return trace_file(self.path)

    def close(self) -> None:
        """Let others write the file."""
        self._file.close()

    def recorder(self, plan: Plan, samples: int) -> SpanRecorder:
        """Return the observer of a run with `samples` samples in an epoch, over all replicas.

        Raises:
            InputError: the run has no sample of the window, no rows where these are asked for, or boards that die.
        """
        plan.needs_all_alive("a trace")
        if self.level is Level.ROW and not plan.times_rows:
            raise InputError("`trace_level` = 'row': these boards take actions as a whole, without rows; leave it out")
        return self._run(plan, samples).recorder()

    def write(self, plan: Plan, samples: int, recorders: Sequence[SpanRecorder]) -> None:
        """Write the trace from the recorders of all ranks.

        Raises:
            InputError: the file cannot be written.
        """
        write_trace(self._file, self._run(plan, samples).timeline(recorders, self.level))

    def _run(self, plan: Plan, samples: int) -> RecordedRun:
        run = RunSamples.of(plan, samples)
        return recorded_run(run, self.window.within(run.number, "trace_samples"))


def pair_trace(
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
