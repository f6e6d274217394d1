"""What a user asks for with `--trace` and its companions, checked before a run begins."""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
from collections.abc import Sequence

from ..common import InputError, WholeFile
from ..plan import ChainPlan
from .chrome import trace_file, write_trace
from .course import Course
from .recorder import SpanRecorder
from .span import Level
from .timeline import timeline_of
from .window import DEFAULT_WINDOW, Window


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

    def recorder(self, plan: ChainPlan, samples: int) -> SpanRecorder:
        """Return the observer of a run with `samples` samples in an epoch, over all replicas.

        Raises:
            InputError: the run has no sample of the window.
        """
        plan.needs_one_stage("a trace")
        plan.needs_all_alive("a trace")
        course = Course.of(plan, samples)
        return SpanRecorder(course, self.window.within(course.run_samples, "trace_samples"))

    def write(self, plan: ChainPlan, samples: int, recorders: Sequence[SpanRecorder]) -> None:
        """Write the trace from the recorders of all ranks.

        Raises:
            InputError: the file cannot be written.
        """
        course = Course.of(plan, samples)
        window = self.window.within(course.run_samples, "trace_samples")
        write_trace(self._file, timeline_of(course, window, recorders), self.level)


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
