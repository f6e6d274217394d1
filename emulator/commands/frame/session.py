"""The ranks of a run: how they start, and how they end, with one line from rank 0 and one exit
status.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import NoReturn

from ....launch import (
    ENDING,
    STALL_STATUS,
    Dismissed,
    EndRequest,
    LaunchError,
    MpiRanks,
    NoProgress,
    RankFailed,
    Ranks,
    SingleProcess,
    Stopped,
    Terminated,
    Watch,
    abort_ranks,
    check_shared_memory,
    ended_by,
    introduce,
    join,
    launcher_rank,
    left_over,
    tell,
)
from ...common import BUG_STATUS, InputError, check_start
from . import output

_TIMEOUT_S, _INTERRUPT_TIMEOUT_S = 30.0, 5.0
"""How long ranks wait for one another at the end: some may be in an operation that cannot be
interrupted.
"""
_FIRST_WORD_S = 0.3
"""How long a rank that ends all lets rank 0 say why, which may have the same reason, where there is
no guard.
"""


class Session:
    """The ranks of this run, once this process has joined them, and how to leave them.

    `rank` is that of this process among those that a launcher has started, None without one; a
    command that does not `take_ranks` leaves them alone, and is rank 0's.
    """

    def __init__(
        self, end_request: EndRequest | None = None, arguments: Sequence[str] = ()
    ) -> None:
        self.end_request = end_request or EndRequest()
        self.rank = launcher_rank()
        self._trains = arguments[:1] == ["train"]
        takes_ranks = arguments[:1] in (["train"], ["sweep"]) and not {"-h", "--help"} & {
            *arguments
        }
        self._is_awaited = self.rank is not None and takes_ranks
        self._ranks: Ranks | None = None
        self._watch: Watch | None = None
        self._has_said = False

    @property
    def follows(self) -> bool:
        """Whether this process does what rank 0 says, and says nothing itself."""
        return bool(self.rank)

    def introduce(self) -> None:
        """Make this process known to the guard of its host, where others await it, before all that
        takes time.

        A rank that has nothing to do exits.

        Raises:
            InputError: this host, or a limit of this process, leaves too little memory to start.
        """
        if self._is_awaited:
            assert self.rank is not None
            self._watch = introduce(self.rank)
        self.end_request.end_at_once(lambda number: self._end_at_once(*ended_by(number)))
        if self.follows and not self._is_awaited:
            sys.exit(0)
        if self._is_awaited:
            check_start()
        if self._watch is not None:
            try:
                check_shared_memory(is_first=self._watch.is_first)
            except LaunchError as error:
                raise InputError(str(error)) from None

    def join(self) -> Ranks:
        """Return the ranks of this run: those of the launcher that started this process, or this
        process alone.

        Alone is also a command that takes no ranks, under a launcher.

        Raises:
            InputError: launcher and MPI library do not match.
        """
        if self._ranks is None and self.rank is not None and not self._is_awaited:
            self._ranks = SingleProcess(self.end_request)  # the others have ended
        if self._ranks is None:
            left = left_over()
            if left is not None:
                output.tell_notes([f"no launcher is behind {left}; this process runs alone"])
            try:
                self._ranks = join(self._watch, self.end_request)
            except LaunchError as error:
                raise InputError(str(error)) from None
        return self._ranks

    def join_watched(self) -> Ranks:
        """Return the ranks of this run, of which the guard takes care, and which end on SIGTERM,
        SIGUSR1 and SIGHUP.
        """
        ranks = self.join()
        ranks.end_request.listen()
        ranks.watch()
        return ranks

    def follow(self) -> NoReturn:
        """Follow rank 0's orders and exit; for all ranks but 0."""
        ranks = self.join()
        assert isinstance(ranks, MpiRanks)
        try:
            if self._trains:
                self._get_ready(ranks)
            ranks.follow()
        except Dismissed as dismissed:
            sys.exit(dismissed.status)

    def _get_ready(self, ranks: MpiRanks) -> None:
        """Register with the guard, and import what training needs, while rank 0 plans."""
        self.join_watched()
        from .kernels import load, starting

        with starting():
            from ...run import epochs  # noqa: F401 - rank 0 will ask for it

        ranks.in_turn(lambda: load(lambda _: None))

    def end(self, status: int) -> NoReturn:
        """Exit with `status` on every rank; for rank 0, while the others wait for tasks."""
        self.end_request.close()
        if self._ranks is not None:
            self._ranks.dismiss(status)
        sys.exit(status)

    def fail(self, line: str, status: int) -> NoReturn:
        """Print `line` on rank 0, and end every rank.

        While the others only wait for tasks, they leave MPI in order. During a run, the rank that
        fails stops them.
        """
        self._begin_to_end()
        if self._is_awaited and self._ranks is None:
            self._end_at_once(line, status)
        if self._ranks is not None and (self._ranks.rank > 0 or self._ranks.running):
            self._fail_alone(self._ranks, line, status)
        self._say(line, status)
        self.end(status)

    def terminate(self, ended: Terminated) -> NoReturn:
        """End by a signal; a launcher sends it to the others, too, when a rank has died or is
        stopped.
        """
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

    def _end_at_once(self, line: str, status: int) -> NoReturn:
        """End the run, wherever this process is, in place of all that is reported and put in order
        otherwise.

        Open MPI's launcher ends all ranks with the first that exits.
        """
        is_told = self._has_said or (self._watch is not None and self._watch.end(line))
        if self.follows and not is_told:
            time.sleep(_FIRST_WORD_S)
        elif not is_told:
            output.tell(line)
        if self._is_awaited:
            abort_ranks(status)
        os._exit(status)

    def _begin_to_end(self) -> None:
        """Ignore further signals, which reach ranks one by one: an order to stop may have been
        quicker.
        """
        if isinstance(self._ranks, MpiRanks):
            for number in ENDING:
                signal.signal(number, signal.SIG_IGN)

    def _say(self, line: str, status: int) -> None:
        """Print a line, past Open MPI's launcher if that is about to end the run: it then passes on
        nothing.
        """
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        self._has_said = True
        if status > 128 and isinstance(self._ranks, MpiRanks):
            if self._watch is None or not self._watch.tell(line):
                tell(line)
        else:
            output.tell(line)


def _leave(ranks: Ranks, status: int) -> NoReturn:
    """Exit together with the other ranks, through C's `exit`, since Python's exit would wait for
    threads.

    MPICH tells its launcher in C's `exit` that this rank has left MPI.
    """
    import ctypes  # imported here, after a failure, and not at each start

    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    ranks.leave_together(_INTERRUPT_TIMEOUT_S if status > 128 else _TIMEOUT_S)
    leave: Callable[[int], NoReturn] = ctypes.PyDLL(None).exit
    leave(status)
