"""A request to end: SIGINT (Ctrl-C), or SIGTERM, SIGUSR1 and SIGHUP, as batch systems and terminals
send them.

A command takes signals from its first lines on. It notes those that come before it knows how to
end; then it ends at once, wherever it is, until there is something to put in order; from then on
they are exceptions; and once it ends, it ignores them. A run that can save its state takes note of
the first SIGTERM, SIGUSR1 or SIGHUP, and asks at its next mini-batch boundary whether there was
one; another signal, or a run that cannot, ends at once. SIGUSR2 interrupts like SIGINT: some
launchers do not pass SIGINT on.

Rank 0 ends the other ranks by exceptions, `Stopped` and `Dismissed`; from one that fails it gets
`RankFailed`.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn

_INTERRUPTS = signal.SIGINT, signal.SIGUSR2
_TERMINATIONS = signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP
IGNORED = signal.SIGINT, signal.SIGHUP
"""Signals that whoever starts a process may have it ignore, as shells do in the background, and
`nohup`.
"""
ENDING = *_INTERRUPTS, *_TERMINATIONS
"""Signals that ask a process to end."""
_MOST_S = 6.0
"""How long a process may take to put in order what it has begun. Code that catches all exceptions,
and Python where it cannot raise one, may have swallowed the request.
"""


def ended_by(number: int) -> tuple[str, int]:
    """Return the line for the user, and the exit status, of what a signal ends."""
    if number in _INTERRUPTS:
        return "emuchain: interrupted", 128 + signal.SIGINT
    return f"emuchain: ended by {signal.Signals(number).name}", 128 + number


def is_ignored(number: int) -> bool:
    """Return whether whoever started this process has it ignore a signal that may be."""
    return number in IGNORED and signal.getsignal(number) is signal.SIG_IGN


def importing() -> contextlib.AbstractContextManager[None]:
    """Return a context for imports: a signal ends this process at once meanwhile, and is an
    exception from then on.

    Where no command has taken signals, nothing changes.
    """
    request = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return request.at_once() if isinstance(request, EndRequest) else contextlib.nullcontext()


class Terminated(BaseException):
    """The run is to end at once: like KeyboardInterrupt, but by SIGTERM, SIGUSR1 or SIGHUP."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.line, self.status = ended_by(number)


class EndRequest:
    """What this process has been asked to do; `noted` is the number of the signal, 0 if there was
    none.

    `on_note` is notified of one that a run has taken note of. All methods are for the main thread.
    """

    def __init__(self, on_note: Callable[[int], None] = lambda _: None) -> None:
        self.noted = 0
        self.on_note = on_note
        self._can_wait = False
        self._end: Callable[[int], NoReturn] | None = None
        self._is_taken = False
        self._before: dict[signal.Signals, Any] = {}  # handlers of a caller

    def take(self) -> None:
        """Note signals from now on, until `end_at_once` says how this process ends; for the process
        of a command.

        What whoever started this process has it ignore, of `IGNORED`, stays ignored.
        """
        self._is_taken = True
        for number in ENDING:
            if not is_ignored(number):
                signal.signal(number, self._note)

    def end_at_once(self, end: Callable[[int], NoReturn]) -> None:
        """End by `end` on a signal, also on one that came before; where signals were taken."""
        if self._is_taken:
            # The handlers come first: a signal after them ends the process itself, one before them
            # is noted, and none is lost in between.
            self._end = end
            self._handle(self._end_now)
            if self.noted:
                end(self.noted)

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """End at once during the body, and have signals be exceptions from then on; where they were
        taken.
        """
        if self._end is not None:
            self._handle(self._end_now)
        yield
        if self._end is not None:
            self._handle(self._take)

    def listen(self) -> None:
        """Have all of these signals but SIGINT, which is one already, be exceptions; where none
        were taken.
        """
        if self._end is None:
            for number in ENDING:
                if number != signal.SIGINT and not is_ignored(number):
                    before = signal.signal(number, self._take)
                    # `listen` may be called again, and would find its own handlers: the caller's
                    # came first.
                    self._before.setdefault(number, before)

    def close(self) -> None:
        """Ignore signals from now on, since this process ends; where none were taken, give them
        back to the caller.
        """
        if self._is_taken:
            self._handle(signal.SIG_IGN)
            return
        while self._before:
            signal.signal(*self._before.popitem())

    @contextlib.contextmanager
    def noting(self) -> Iterator[None]:
        """Take note of the first signal, for a run that asks for it (`Ranks.end_wanted`), and go
        on.
        """
        self._can_wait = True
        try:
            yield
        finally:
            self._can_wait = False

    def _handle(self, handler: Callable[[int, FrameType | None], object] | signal.Handlers) -> None:
        for number in ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        # The first one determines the line for the user and the exit status.
        self.noted = self.noted or number

    def _end_now(self, number: int, _: FrameType | None) -> None:
        assert self._end is not None
        # A second signal must not begin the end anew.
        self._handle(signal.SIG_IGN)
        self._end(number)

    def _take(self, number: int, _: FrameType | None) -> None:
        if number in _TERMINATIONS and self._can_wait and not self.noted:
            self.noted = number
            self.on_note(number)
            return
        if self._end is not None:
            self._handle(signal.SIG_IGN)
            signal.signal(signal.SIGALRM, lambda *_: self._end_now(number, None))
            signal.setitimer(signal.ITIMER_REAL, _MOST_S)
        raise KeyboardInterrupt if number in _INTERRUPTS else Terminated(number)


class Stopped(Exception):
    """Rank 0 ends the run while ranks may wait for messages; this rank ends too, with the same
    status.

    `line` is the reason, as rank 0 has reported it to the user.
    """

    def __init__(self, status: int, line: str) -> None:
        super().__init__(status, line)
        self.status, self.line = status, line


class Dismissed(Exception):
    """Rank 0 has no more tasks; this rank finalises MPI and exits with the same status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class RankFailed(Exception):
    """Another rank has failed; `str` is its message to the user, `status` the exit status that it
    requests.
    """

    def __init__(self, line: str, status: int) -> None:
        super().__init__(line)
        self.status = status

    def __reduce__(self) -> tuple[type[RankFailed], tuple[str, int]]:
        # By default an exception is made again from `args`, which have the line alone.
        return RankFailed, (str(self), self.status)
