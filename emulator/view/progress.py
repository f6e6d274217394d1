"""Progress of a long run, which rank 0 alone prints, and of a sweep: a bar on a terminal, elsewhere
lines.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Literal, TextIO

from ..common import escaped, format_time_ps, plural
from .terminal import is_terminal, screen_width, terminal_width, wrapped

if TYPE_CHECKING:
    import rich.progress
    from typing_extensions import Self

    from ..config import Config
    from ..run import EpochResult, Position, StepResult


# Columns of the text beside a bar, and of the bar, which is shortened on a narrow terminal.
_WORDS_WIDTH, _SHORTEST_BAR, _LONGEST_BAR = 82, 4, 40

_INTERVAL_S = 10.0

ProgressMode = Literal["auto", "bar", "plain", "steps", "none"]

_EVERY_S, _DRAWN_EVERY_S = 10.0, 0.2


class Progress:
    """Receives a run's progress: `start`, then `step` and `epoch`, `note` at any time, and `close`
    at the end.

    As a context manager it closes itself. This base class prints nothing.
    """

    def start(self, total_samples: int, epochs: int) -> None:
        """Begin a run that trains on `total_samples` samples over all of its `epochs`."""

    def step(
        self,
        samples_done: int,
        epoch: int,
        loss: float | None,
        accuracy: float | None,
        virtual_time_ps: int,
    ) -> None:
        """Report a mini-batch: `samples_done` since the start, `epoch` (from 1), and the latest
        loss and accuracy.
        """

    def epoch(self, row: EpochResult) -> None:
        """Report a finished epoch."""

    def note(self, text: str) -> None:
        """Report anything else worth a line."""

    def close(self) -> None:
        """End the run, whether it succeeded or failed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class SilentProgress(Progress):
    """Progress that prints nothing."""


class PlainProgress(Progress):
    """Lines for files and pipes: about one every `interval` seconds, and one for each epoch."""

    def __init__(
        self,
        stream: TextIO | None = None,
        interval: float = _INTERVAL_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = sys.stdout if stream is None else stream
        self._interval = interval
        self._clock = clock
        self._total = 0
        self._epochs = 0
        self._started = self._spoken = clock()

    def start(self, total_samples: int, epochs: int) -> None:
        self._total = total_samples
        self._epochs = epochs
        self._started = self._spoken = self._clock()

    def step(
        self,
        samples_done: int,
        epoch: int,
        loss: float | None,
        accuracy: float | None,
        virtual_time_ps: int,
    ) -> None:
        now = self._clock()
        if now - self._spoken < self._interval:
            return
        self._spoken = now
        rate = samples_done / (now - self._started) if now > self._started else 0.0
        parts = [
            f"epoch {epoch}/{self._epochs}",
            f"{samples_done}/{self._total} samples",
            f"{rate:.0f} samples/s",
        ]
        parts += step_figures(loss, accuracy, virtual_time_ps)
        if rate > 0:
            parts.append(f"{_clock_time((self._total - samples_done) / rate)} left")
        self._print("  ".join(parts))

    def epoch(self, row: EpochResult) -> None:
        self._print(row.shown(self._epochs))

    def note(self, text: str) -> None:
        for line in wrapped(text, screen_width()):
            self._print(line)

    def _print(self, line: str) -> None:
        # Flushed, so that the line shows at once in a file that is being followed.
        print(line, file=self._stream, flush=True)


class LiveProgress(Progress):
    """A bar on a terminal, redrawn in place; finished epochs and notes stay above it."""

    def __init__(
        self,
        stream: TextIO | None = None,
        width: int | None = None,
        redraw_s: float = 0.2,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        from rich.console import Console

        # A rank's output is a pipe even if a terminal shows it in the end, hence force_terminal and
        # the width.
        self._console = Console(
            file=stream,
            force_terminal=True,
            width=terminal_width() if width is None else width,
            highlight=False,
        )
        self._redraw_s = redraw_s
        self._clock = clock
        self._drawn = float("-inf")
        self._epochs = 0
        self._bar: rich.progress.Progress | None = None
        self._task: rich.progress.TaskID | None = None

    def start(self, total_samples: int, epochs: int) -> None:
        from rich import progress

        self.close()
        self._epochs = epochs
        # Redrawn in `step`, not by a thread: a rank has one core and computes on it.
        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(
                bar_width=max(_SHORTEST_BAR, min(_LONGEST_BAR, self._console.width - _WORDS_WIDTH))
            ),
            progress.TextColumn("{task.percentage:>3.0f} %"),
            progress.TextColumn("{task.fields[figures]}"),
            progress.TimeRemainingColumn(compact=True),
            console=self._console,
            auto_refresh=False,
            get_time=self._clock,
        )
        self._task = self._bar.add_task(f"epoch 1/{epochs}", total=total_samples, figures="")
        self._bar.start()

    def step(
        self,
        samples_done: int,
        epoch: int,
        loss: float | None,
        accuracy: float | None,
        virtual_time_ps: int,
    ) -> None:
        if self._bar is None or self._task is None:
            return
        speed = self._bar.tasks[0].speed
        figures = [] if speed is None else [f"{speed:.0f}/s"]
        self._bar.update(
            self._task,
            completed=samples_done,
            description=f"epoch {epoch}/{self._epochs}",
            figures="  ".join(figures + step_figures(loss, accuracy, virtual_time_ps)),
        )
        now = self._clock()
        if now - self._drawn >= self._redraw_s:
            self._drawn = now
            self._bar.refresh()

    def epoch(self, row: EpochResult) -> None:
        self.note(row.shown(self._epochs))

    def note(self, text: str) -> None:
        self._console.print(escaped(text), markup=False, soft_wrap=True)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


class RunProgress:
    """Tells a progress what a run does: counts samples, from where it goes on, too."""

    def __init__(self, progress: Progress, config: Config, samples: int) -> None:
        self.progress, self._batch, self._samples = progress, config.batch, samples
        self._epochs, self._done = config.epochs, 0

    def start(self) -> None:
        """Begin the run, whose epochs have `samples` each."""
        self.progress.start(self._samples * self._epochs, self._epochs)

    def resume(self, at: Position) -> None:
        """Go on from a position."""
        self._done = at.epoch * self._samples + at.step * self._batch

    def step(self, result: StepResult) -> None:
        """Report a replica's share of a mini-batch."""
        tally = result.tally
        self._done += tally.samples
        figures = tally.mean_loss, tally.known_accuracy, result.virtual_time_ps
        self.progress.step(self._done, result.epoch + 1, *figures)


def make_progress(mode: ProgressMode, rank: int = 0) -> Progress:
    """Return the progress for `mode` on `rank`; `auto` draws a bar if output ends on a terminal,
    else prints lines.
    """
    if rank != 0 or mode == "none":
        return SilentProgress()
    if mode == "bar" or (mode == "auto" and is_terminal()):
        return LiveProgress()
    return PlainProgress(interval=0.0 if mode == "steps" else _INTERVAL_S)


def step_figures(loss: float | None, accuracy: float | None, virtual_time_ps: int) -> list[str]:
    """Return the loss, the accuracy and the time of a mini-batch, as far as they are known."""
    figures = []
    if loss is not None:
        figures.append(f"loss {loss:.4f}")
    if accuracy is not None:
        figures.append(f"accuracy {100 * accuracy:.1f} %")
    figures.append(f"virtual {format_time_ps(virtual_time_ps)}")
    return figures


def _clock_time(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


@contextlib.contextmanager
def point_progress(
    title: str, total: int, done: int = 0, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[], None]]:
    """Report the progress of `total` points, of which `done` are there already; the body gets what
    to call for each.
    """
    if is_terminal(2):
        with _bar(title, total, done, clock) as advance:
            yield advance
    else:
        yield _lines(title, total, done, clock)


def _lines(title: str, total: int, done: int, clock: Callable[[], float]) -> Callable[[], None]:
    started = spoken = clock()
    before = done

    def advance() -> None:
        nonlocal done, spoken
        done, now = done + 1, clock()
        if now - spoken >= _EVERY_S:
            spoken = now
            left_s = (total - done) * (now - started) / (done - before)
            print(
                f"{title}: {done} of {plural(total, 'point')}, {left_s:.0f} s left",
                file=sys.stderr,
                flush=True,
            )

    return advance


@contextlib.contextmanager
def _bar(
    title: str, total: int, done: int, clock: Callable[[], float]
) -> Iterator[Callable[[], None]]:
    from rich import progress
    from rich.console import Console

    bar = progress.Progress(
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(compact=True),
        console=Console(stderr=True, force_terminal=True, highlight=False),
        auto_refresh=False,  # by a thread, which processes that are copies of this one would lack
        transient=True,
        get_time=clock,
    )
    task, drawn = bar.add_task(title, total=total, completed=done), float("-inf")

    def advance() -> None:
        nonlocal drawn
        bar.advance(task)
        if clock() - drawn >= _DRAWN_EVERY_S:
            drawn = clock()
            bar.refresh()

    with bar:
        yield advance
