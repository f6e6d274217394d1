"""Progress of a sweep on standard error: a bar on a terminal, elsewhere an occasional line."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from ..common import plural
from .terminal import is_terminal

_INTERVAL_S = 10.0
_REDRAW_S = 0.2


@contextlib.contextmanager
def point_progress(
    title: str, total: int, done: int = 0, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[], None]]:
    """Report the progress of `total` points, of which `done` are there already; the body gets what to call for each."""
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
        if now - spoken >= _INTERVAL_S:
            spoken = now
            left_s = (total - done) * (now - started) / (done - before)
            print(f"{title}: {done} of {plural(total, 'point')}, {left_s:.0f} s left", file=sys.stderr, flush=True)

    return advance


@contextlib.contextmanager
def _bar(title: str, total: int, done: int, clock: Callable[[], float]) -> Iterator[Callable[[], None]]:
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
        if clock() - drawn >= _REDRAW_S:
            drawn = clock()
            bar.refresh()

    with bar:
        yield advance
