"""The ranks of this process, how they begin, and how they end: with one line from rank 0, and one exit status."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import NoReturn

from ...comm.join import LaunchError, join
from ...comm.ranks import Dismissed, MpiRanks, Ranks, Stopped, Trouble
from ..common.errors import InputError

INPUT_STATUS, BUG_STATUS = 2, 1


class Session:
    """The ranks of this process, once it has joined them, and how to leave them."""

    def __init__(self) -> None:
        self._ranks: Ranks | None = None

    def join(self) -> Ranks:
        """The ranks of this run: those of the launcher that started this process, or this process alone.

        Raises:
            InputError: launcher and MPI library do not go together.
        """
        if self._ranks is None:
            try:
                self._ranks = join()
            except LaunchError as error:
                raise InputError(str(error)) from None
        return self._ranks

    def follow(self, arguments: Sequence[str]) -> NoReturn:
        """On all ranks but 0: do as rank 0 says, and exit."""
        assert isinstance(self._ranks, MpiRanks)
        try:
            if "train" in arguments[:1]:
                self._get_ready(self._ranks)
            self._ranks.follow()
        except Dismissed as dismissed:
            sys.exit(dismissed.status)

    def _get_ready(self, ranks: MpiRanks) -> None:
        """Import what training needs, while rank 0 plans."""
        from .kernels import load, settle

        settle()
        from ..run import follower as part  # noqa: F401 - rank 0 will ask for it

        ranks.in_turn(lambda: load(lambda _: None))

    def end(self, status: int) -> NoReturn:
        """On rank 0: all is well; every rank exits."""
        if self._ranks is not None:
            self._ranks.dismiss(status)
        sys.exit(status)

    def fail(self, line: str, status: int) -> NoReturn:
        """Say why, on rank 0, and end every rank.

        As long as the others only wait for tasks, they leave MPI in order. In a run one rank fails, and stops them.
        """
        if self._ranks is not None and (self._ranks.rank > 0 or self._ranks.running):
            self._fail_alone(self._ranks, line, status)
        print(line, file=sys.stderr, flush=True)
        self.end(status)

    def fail_otherwise(self, error: Exception) -> NoReturn:
        """Rank 0's word to stop, another rank's trouble, or a bug of ours."""
        if self._ranks is not None:
            if isinstance(error, Stopped):
                _leave(self._ranks, error.status)
            if isinstance(error, Trouble):
                print(str(error), file=sys.stderr, flush=True)
                self._ranks.stop_others(error.status)
                _leave(self._ranks, error.status)
        if os.environ.get("EMUCHAIN_DEBUG"):
            traceback.print_exc()
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        line = f"emuchain: internal error: {what} (EMUCHAIN_DEBUG=1 shows where; please report it)"
        self.fail(line, BUG_STATUS)

    def _fail_alone(self, ranks: Ranks, line: str, status: int) -> NoReturn:
        try:
            ranks.report_trouble(line, status)
        except Stopped as stopped:
            status = stopped.status
        except Dismissed as dismissed:
            sys.exit(dismissed.status)
        if ranks.rank == 0:
            print(line, file=sys.stderr, flush=True)
            ranks.stop_others(status)
        _leave(ranks, status)


def _leave(ranks: Ranks, status: int) -> NoReturn:
    """Together, and not by Python's way out, which would wait for threads.

    It is in C's `exit` that MPICH tells its launcher that this rank has left MPI.
    """
    import ctypes  # here, where a run has failed, and not at each start

    sys.stdout.flush()
    sys.stderr.flush()
    ranks.leave_together()
    leave: Callable[[int], NoReturn] = ctypes.PyDLL(None).exit
    leave(status)
