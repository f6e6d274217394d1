"""The ranks of a run and what they say to one another beside the emulated chain.

`Alone` is one process without MPI, `MpiRanks` a communicator's. Rank 0 leads: it reads the command line, and gives the
others tasks until it dismisses them. It hears of progress and trouble through the side channel; when a run cannot go
on, it stops all others. Whoever waits here sleeps, for ranks may outnumber cores.
"""

from __future__ import annotations

import faulthandler
import math
import os
import socket
import time
from collections.abc import Callable
from typing import Any, NoReturn

_SIDE_TAG, _STOP_TAG, _TASK_TAG, _TURN_TAG = 4001, 4002, 4003, 4004
_NAP_S = 1e-3
_STOP_TIMEOUT_S = 30.0  # a rank may be busy with what nobody can interrupt
_TROUBLE_TIMEOUT_S = 120.0  # rank 0 does not listen while it compiles or plans


class Stopped(Exception):
    """Rank 0 ends the run while ranks may wait for messages; this rank ends too, silently, with the same status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Dismissed(Exception):
    """Rank 0 has no more tasks; this rank leaves MPI in order, with the same status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Trouble(Exception):
    """Another rank cannot go on; `str` is its line for the user, `status` the exit status that it asks for."""

    def __init__(self, line: str, status: int) -> None:
        super().__init__(line)
        self.status = status

    def __reduce__(self) -> tuple[type[Trouble], tuple[str, int]]:
        return Trouble, (str(self), self.status)


class Alone:
    """One process, no MPI."""

    rank = 0
    size = 1
    comm: Any = None
    exchange_comm: Any = None
    running = False  # whether other ranks have a task, so that one may fail while others do not

    def __init__(self) -> None:
        self.on_object: Callable[[Any], None] = lambda _: None

    def start(self, task: Callable[[Ranks], None]) -> None:
        """There is nobody to do it."""

    def dismiss(self, status: int) -> None:
        """There is nobody to dismiss."""

    def in_turn(self, task: Callable[[], None]) -> None:
        """Do it."""
        task()

    def gather(self, value: Any) -> list[Any]:
        """Everybody's values, on rank 0."""
        return [value]

    def share(self, value: Any) -> list[Any]:
        """Everybody's values, on every rank."""
        return [value]

    def settling(self) -> Callable[[], bool]:
        """A question that is answered with yes when all ranks have asked for it."""
        return lambda: True

    def tell(self, value: Any) -> None:
        """Give rank 0 an object."""
        self.on_object(value)

    def poll(self) -> bool:
        """Nothing can come."""
        return False

    def report_trouble(self, line: str, status: int) -> None:
        """Nobody else needs to know."""

    def stop_others(self, status: int) -> None:
        """There are none."""

    def leave_together(self) -> None:
        """Nobody else leaves."""

    def describe(self) -> str:
        """For the results file."""
        return "none"


class MpiRanks:
    """The ranks of a communicator, which is this object's own."""

    def __init__(self, comm: Any) -> None:
        self.comm = comm
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()
        self.on_object: Callable[[Any], None] = lambda _: None
        self.running = False
        self._side = comm.Clone()
        self.exchange_comm = comm.Clone()
        self._pending: list[Any] = []
        hosts = comm.allgather(socket.gethostname())
        self._on_this_host = [rank for rank, host in enumerate(hosts) if host == hosts[self.rank]]

    def start(self, task: Callable[[Ranks], None]) -> None:
        """From rank 0: let all others do a task, which goes to them as a pickle; then any rank may fail alone."""
        self.running = self.size > 1
        self._send_all(task, _TASK_TAG)

    def dismiss(self, status: int) -> None:
        """From rank 0: no more tasks; all others end with this exit status."""
        self._send_all(Dismissed(status), _STOP_TAG)
        _nap_until(self._sent, _STOP_TIMEOUT_S)

    def follow(self) -> NoReturn:
        """On all ranks but 0: do the tasks that rank 0 gives, as they come.

        Raises:
            Dismissed: there are no more.
        """
        while True:
            task = self._wait_for(0, _TASK_TAG)
            self.running = True
            task(self)
            self.running = False

    def in_turn(self, task: Callable[[], None]) -> None:
        """Do something on the first rank of each machine, and when it is done there, on the others."""
        first, *others = self._on_this_host
        if self.rank != first:
            self._wait_for(first, _TURN_TAG)
        task()
        if self.rank == first:
            self._pending += [self._side.isend(None, rank, _TURN_TAG) for rank in others]

    def gather(self, value: Any) -> list[Any]:
        """Everybody's values, on rank 0; elsewhere an empty list."""
        self._wait_for_all()
        return self.comm.gather(value) or []

    def share(self, value: Any) -> list[Any]:
        """Everybody's values, on every rank."""
        self._wait_for_all()
        return self.comm.allgather(value)

    def settling(self) -> Callable[[], bool]:
        """A question that is answered with yes when all ranks have asked for it."""
        return self.comm.Ibarrier().Test

    def tell(self, value: Any) -> None:
        """Give rank 0 an object, without waiting."""
        if self.rank == 0:
            self.on_object(value)
        else:
            self._pending.append(self._side.isend(value, 0, _SIDE_TAG))

    def poll(self) -> bool:
        """Hand over what has come; a pump of the host.

        Raises:
            Stopped: rank 0 ends the run.
            Dismissed: rank 0 has no more tasks.
            Trouble: on rank 0, another rank cannot go on.
        """
        self._sent()
        if self.rank > 0:
            if self._side.iprobe(0, _STOP_TAG):
                raise self._side.recv(None, 0, _STOP_TAG)
            return False
        moved = False
        while self._side.iprobe(tag=_SIDE_TAG):
            value = self._side.recv(tag=_SIDE_TAG)
            if isinstance(value, Trouble):
                raise value
            self.on_object(value)
            moved = True
        return moved

    def report_trouble(self, line: str, status: int) -> None:
        """Tell rank 0 that this rank cannot go on, and wait until it says how to end."""
        if self.rank == 0:
            return
        self._pending.append(self._side.isend(Trouble(line, status), 0, _SIDE_TAG))
        _nap_until(self.poll, _TROUBLE_TIMEOUT_S)

    def stop_others(self, status: int) -> None:
        """From rank 0: end the run on every other rank, with this exit status."""
        if self.rank > 0:
            return
        # What was sent before may never be taken: a rank that failed takes no task.
        before, self._pending = self._pending, []
        self._send_all(Stopped(status), _STOP_TAG)
        _nap_until(self._sent, _STOP_TIMEOUT_S)
        self._pending = before

    def leave_together(self) -> None:
        """Wait until all ranks leave, or for some seconds; then leave MPI, if they do.

        When a rank ends that has not left MPI, launchers kill the others, and tell of that in place of their status.
        MPI takes no notice of messages that nobody will take any more. Should it wait for them all the same, this
        process ends after some seconds, with status 1.
        """
        from mpi4py import MPI

        if not _nap_until(self._side.Ibarrier().Test, _STOP_TIMEOUT_S):
            return
        with open(os.devnull, "w") as nowhere:
            # MPI_Finalize keeps Python's lock; this watch needs none.
            faulthandler.dump_traceback_later(_STOP_TIMEOUT_S, exit=True, file=nowhere)
            MPI.Finalize()
            faulthandler.cancel_dump_traceback_later()

    def describe(self) -> str:
        """For the results file."""
        from mpi4py import MPI

        return " ".join(MPI.Get_library_version().split("\n")[0].split()[:4]).strip(" ,")

    def _send_all(self, value: Any, tag: int) -> None:
        self._pending += [self._side.isend(value, rank, tag) for rank in range(1, self.size)]

    def _sent(self) -> bool:
        """Whether all that this rank has said is on its way; forgets what is."""
        if self._pending:
            self._pending = [request for request in self._pending if not request.test()[0]]
        return not self._pending

    def _wait_for(self, rank: int, tag: int) -> Any:
        """What a rank says next under a tag, unless this rank is stopped before."""

        def has_come() -> bool:
            self.poll()
            return bool(self._side.iprobe(rank, tag))

        _nap_until(has_come)
        return self._side.recv(None, rank, tag)

    def _wait_for_all(self) -> None:
        """Wait until all ranks are here; MPI's own waiting would burn a core."""
        settled = self.settling()

        def is_settled() -> bool:
            self.poll()
            return settled()

        _nap_until(is_settled)


Ranks = Alone | MpiRanks


def _nap_until(done: Callable[[], bool], timeout_s: float = math.inf) -> bool:
    """Ask again and again, and sleep in between; return whether it is done."""
    give_up_s = time.monotonic() + timeout_s
    while not (is_done := done()) and time.monotonic() < give_up_s:
        time.sleep(_NAP_S)
    return is_done
