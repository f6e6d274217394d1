"""Progress in a notebook: a bar that is redrawn in place, by IPython's own display, which needs no
widgets and stays in a notebook that is saved.
"""

from __future__ import annotations

import contextlib
import functools
import html
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..common import plural
from ..run import EpochResult
from .progress import Progress, ProgressMode, SilentProgress, make_progress, step_figures

_DRAWN_EVERY_S = 0.2
_EPOCHS = 10
"""Finished epochs that stay below the bar: the last ones."""


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


class NotebookBar:
    """A bar of `total` parts in the output of a cell, redrawn a few times a second."""

    def __init__(self, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._total, self._clock = total, clock
        self._drawn = float("-inf")
        self._handle: Any = None

    def show(
        self, done: int, text: str, lines: Sequence[str] = (), *, at_once: bool = False
    ) -> None:
        """Draw the bar with a text beside it and lines below, if it is time to or must be now."""
        now = self._clock()
        if not at_once and now - self._drawn < _DRAWN_EVERY_S:
            return
        from IPython.display import HTML, display

        self._drawn = now
        bar = f'<progress max="{self._total}" value="{done}"></progress>'
        below = "".join(f"<br>{html.escape(line)}" for line in lines)
        drawn = HTML(f"<div>{bar} {html.escape(text)}{below}</div>")
        if self._handle is None:
            self._handle = display(drawn, display_id=True)
        else:
            self._handle.update(drawn)


class NotebookProgress(Progress):
    """Progress of a run in the output of a cell, with its last epochs."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lines: list[str] = []
        self._text, self._done = "", 0
        self._bar: NotebookBar | None = None
        self._epochs = 0

    def start(self, total_samples: int, epochs: int) -> None:
        self._bar, self._epochs = NotebookBar(total_samples, self._clock), epochs
        self._show(at_once=True)

    def step(
        self,
        samples_done: int,
        epoch: int,
        loss: float | None,
        accuracy: float | None,
        virtual_time_ps: int,
    ) -> None:
        figures = step_figures(loss, accuracy, virtual_time_ps)
        self._done = samples_done
        self._text = "  ".join([f"epoch {epoch}/{self._epochs}", *figures])
        self._show()

    def epoch(self, row: EpochResult) -> None:
        self.note(row.shown(self._epochs))

    def note(self, text: str) -> None:
        self._lines = [*self._lines, text][-_EPOCHS:]
        self._show(at_once=True)

    def close(self) -> None:
        self._show(at_once=True)

    def _show(self, *, at_once: bool = False) -> None:
        if self._bar is not None:
            self._bar.show(self._done, self._text, self._lines, at_once=at_once)


def call_progress(mode: ProgressMode, rank: int = 0) -> Progress:
    """Return the progress of a call from Python: of `auto` a bar in a notebook, and nothing
    elsewhere.
    """
    if rank == 0 and mode in ("auto", "bar") and in_notebook():
        return NotebookProgress()
    return SilentProgress() if mode == "auto" else make_progress(mode, rank)


def call_announce(
    title: str,
) -> Callable[[int, int], contextlib.AbstractContextManager[Callable[[], None]]]:
    """Return what reports the progress of a call's points: a bar in a notebook."""
    if in_notebook():
        return functools.partial(_points, title)
    return lambda *_: contextlib.nullcontext(lambda: None)


@contextlib.contextmanager
def _points(title: str, total: int, done: int) -> Iterator[Callable[[], None]]:
    bar = NotebookBar(total)

    def show(*, at_once: bool = False) -> None:
        bar.show(done, f"{title}: {done} of {plural(total, 'point')}", at_once=at_once)

    def advance() -> None:
        nonlocal done
        done += 1
        show()

    show(at_once=True)
    try:
        yield advance
    finally:
        show(at_once=True)
