"""One process without MPI, which offers what `MpiRanks` (`ranks.py`) does."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from .end_request import EndRequest


class SingleProcess:
    """One process, no MPI."""

    rank = 0
    size = 1
    on_this_host: Sequence[int] = (0,)
    comm: Any = None
    exchange_comm: Any = None
    running = False  # whether other ranks have a task, so that one may fail while others do not
    watchdog: Any = None
    transport: Any = None
    idles = False  # whether a processor has nothing to do while this process waits: it never does

    def __init__(self, end_request: EndRequest | None = None) -> None:
        self.on_object: Callable[[Any], None] = lambda _: None
        self.end_request = end_request or EndRequest()

    def watch(self) -> None:
        """Do nothing: whoever started this process sees how it ends."""

    def name(self, hosted: Callable[[int], str]) -> None:
        """Do nothing: there are no other ranks to tell from this one."""

    def share_processors(self, work: Sequence[int]) -> None:
        """Do nothing: there are no other ranks."""

    def watch_progress(self, timeout_s: float) -> contextlib.AbstractContextManager[None]:
        """Do nothing: this rank does not wait for others."""
        return contextlib.nullcontext()

    def away(self) -> contextlib.AbstractContextManager[None]:
        """Do nothing: no rank waits for this one."""
        return contextlib.nullcontext()

    def note(self, text: str) -> None:
        """Do nothing: no other process needs to know."""

    def start(self, task: Callable[[Any], None]) -> None:
        """Do nothing: there are no other ranks."""

    def dismiss(self, status: int) -> None:
        """Do nothing: there are no other ranks."""

    def in_turn(self, task: Callable[[], None]) -> None:
        """Run the task."""
        task()

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks, on rank 0."""
        return [value]

    def share(self, value: Any) -> list[Any]:
        """Return the values of all ranks, on every rank."""
        return [value]

    def deal(self, values: list[Any]) -> Any:
        """Return this rank's of the values that rank 0 has, one for each rank."""
        return values[0]

    def end_wanted(self) -> int:
        """Return the number of the signal that asks this run to save its state and end, or 0; see `EndRequest`."""
        return self.end_request.noted

    def settling(self) -> Callable[[], bool]:
        """Return a function that returns true once all ranks have called `settling`."""
        return lambda: True

    def send_to_root(self, value: Any) -> None:
        """Pass an object to rank 0."""
        self.on_object(value)

    def poll(self) -> bool:
        """Return False: nothing can arrive."""
        return False

    def report_failure(self, line: str, status: int) -> None:
        """Do nothing: there are no other ranks."""

    def outlive(self, error: Exception) -> None:
        """Do nothing: MPI does not fail where there is none."""

    def stop_others(self, status: int, line: str) -> None:
        """Do nothing: there are no other ranks."""

    def leave_together(self, timeout_s: float = 0.0) -> None:
        """Do nothing: there are no other ranks."""

    @property
    def ends(self) -> bool:
        """Whether the run ends, for a reason that another process has told."""
        return False

    def abort(self, status: int, *, first: bool) -> NoReturn:
        """Exit."""
        os._exit(status)

    def abandon(self) -> None:
        """Do nothing: there are no communicators."""

    def free(self) -> None:
        """Do nothing: there are no communicators."""

    def describe(self) -> str:
        """Return the MPI library's name and version, for the results file."""
        return "none"
