"""The ranks of a run: how they start, and how they end, with one line from rank 0 and one exit status."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import NoReturn

from ...comm import (
    STALL_STATUS,
    Dismissed,
    LaunchError,
    MpiRanks,
    NoProgress,
    RankFailed,
    Ranks,
    Stopped,
    Terminated,
    Watch,
    introduce,
    join,
    launcher_rank,
    tell,
)
from ..common import BUG_STATUS, InputError
from . import output

_TIMEOUT_S, _INTERRUPT_TIMEOUT_S = 30.0, 5.0
"""How long ranks wait for one another at the end: some may be in an operation that cannot be interrupted."""


class Session:
    """The ranks of this run, once this process has joined them, and how to leave them."""

    def __init__(self) -> None:
        self._ranks: Ranks | None = None
        self._watch: Watch | None = None

    def introduce(self, arguments: Sequence[str]) -> None:
        """Make this process known to the guard of its host, if it is a rank that trains; before all that takes time."""
        rank = launcher_rank()
        if rank is not None and "train" in arguments[:1]:
            self._watch = introduce(rank)

    def join(self) -> Ranks:
        """Return the ranks of this run: those of the launcher that started this process, or this process alone.

        Raises:
            InputError: launcher and MPI library do not match.
        """
        if self._ranks is None:
            try:
                self._ranks = join(self._watch)
            except LaunchError as error:
                raise InputError(str(error)) from None
        return self._ranks

    def join_watched(self) -> Ranks:
        """Return the ranks of this run, of which the guard takes care, and which end on SIGTERM and SIGUSR1."""
        ranks = self.join()
        ranks.end_request.listen()
        ranks.watch()
        return ranks

    def follow(self, arguments: Sequence[str]) -> NoReturn:
        """Follow rank 0's orders and exit; for all ranks but 0."""
        assert isinstance(self._ranks, MpiRanks)
        try:
            if "train" in arguments[:1]:
                self._get_ready(self._ranks)
            self._ranks.follow()
        except Dismissed as dismissed:
            sys.exit(dismissed.status)

    def _get_ready(self, ranks: MpiRanks) -> None:
        """Be watched, and import what training needs, while rank 0 plans."""
        self.join_watched()
        from .kernels import load, starting

        with starting():
            from ..run import follower  # noqa: F401 - rank 0 will ask for it

        ranks.in_turn(lambda: load(lambda _: None))

    def end(self, status: int) -> NoReturn:
        """Exit with `status` on every rank; for rank 0, while the others wait for tasks."""
        if self._ranks is not None:
            self._ranks.dismiss(status)
        sys.exit(status)

    def fail(self, line: str, status: int) -> NoReturn:
        """Print `line` on rank 0, and end every rank.

        While the others only wait for tasks, they leave MPI in order. During a run, the rank that fails stops them.
        """
        self._begin_to_end()
        if self._ranks is not None and (self._ranks.rank > 0 or self._ranks.running):
            self._fail_alone(self._ranks, line, status)
        self._say(line, status)
        self.end(status)

    def terminate(self, ended: Terminated) -> NoReturn:
        """End by a signal; a launcher sends it to the others, too, when a rank has died or is stopped."""
        if self._ranks is not None and self._ranks.ends:
            self._begin_to_end()
            self._ranks.abort(ended.status, first=False)
        self.fail(ended.line, ended.status)

    def fail_otherwise(self, error: Exception) -> NoReturn:
        """End after rank 0's order to stop, another rank's failure, or a bug in emuchain."""
        self._begin_to_end()
        if self._ranks is not None:
            if isinstance(error, NoProgress):
                self._ranks.abort(STALL_STATUS, first=error.here)
            if isinstance(error, Stopped):
                _leave(self._ranks, error.status)
            if isinstance(error, RankFailed):
                self._say(str(error), error.status)
                self._ranks.stop_others(error.status, str(error))
                _leave(self._ranks, error.status)
            self._ranks.outlive(error)
        if os.environ.get("EMUCHAIN_DEBUG"):
            traceback.print_exc()
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        line = f"emuchain: internal error: {what} (EMUCHAIN_DEBUG=1 shows where; please report it)"
        self.fail(line, BUG_STATUS)

    def _fail_alone(self, ranks: Ranks, line: str, status: int) -> NoReturn:
        try:
            ranks.report_failure(line, status)
        except Stopped as stopped:
            status = stopped.status
        except Dismissed as dismissed:
            sys.exit(dismissed.status)
        if ranks.rank == 0:
            self._say(line, status)
            ranks.stop_others(status, line)
        _leave(ranks, status)

    def _begin_to_end(self) -> None:
        """Pay no more attention to signals that reach ranks one by one: an order to stop may have been quicker."""
        if isinstance(self._ranks, MpiRanks):
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
                signal.signal(number, signal.SIG_IGN)

    def _say(self, line: str, status: int) -> None:
        """Print a line, past Open MPI's launcher if that is about to end the run: it then passes on nothing."""
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        if status > 128 and isinstance(self._ranks, MpiRanks):
            tell(line)
        else:
            output.tell(line)


def _leave(ranks: Ranks, status: int) -> NoReturn:
    """Exit together with the other ranks, through C's `exit`, since Python's exit would wait for threads.

    MPICH tells its launcher in C's `exit` that this rank has left MPI.
    """
    import ctypes  # imported here, after a failure, and not at each start

    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    ranks.leave_together(_INTERRUPT_TIMEOUT_S if status > 128 else _TIMEOUT_S)
    leave: Callable[[int], NoReturn] = ctypes.PyDLL(None).exit
    leave(status)
