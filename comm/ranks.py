"""The ranks of a run and what they say to one another beside the emulated chain.

`Alone` is one process without MPI, `MpiRanks` a communicator's. Rank 0 hears of progress and trouble through the side
channel; when it stops the run, it tells all others.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from .mpi import library_version

_SIDE_TAG, _STOP_TAG = 4001, 4002
_STOP_TIMEOUT_S = 5.0


class Stopped(Exception):
    """Rank 0 ends the run; this rank ends too, silently."""


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
    running = False  # whether devices run, so that a rank may fail while others do not

    def __init__(self) -> None:
        self.on_object: Callable[[Any], None] = lambda _: None

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

    def stop_others(self) -> None:
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
        self._pending: list[Any] = []

    def gather(self, value: Any) -> list[Any]:
        """Everybody's values, on rank 0; elsewhere an empty list."""
        self._wait_politely()
        return self.comm.gather(value) or []

    def share(self, value: Any) -> list[Any]:
        """Everybody's values, on every rank."""
        self._wait_politely()
        return self.comm.allgather(value)

    def settling(self) -> Callable[[], bool]:
        """A question that is answered with yes when all ranks have asked for it."""
        return self.comm.Ibarrier().Test

    def _wait_politely(self) -> None:
        """Wait for all ranks without burning a core, as MPI's own waiting would."""
        settled = self.settling()
        while not settled():
            self.poll()
            time.sleep(1e-3)

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
            Trouble: on rank 0, another rank cannot go on.
        """
        if self._pending:
            self._pending = [request for request in self._pending if not request.test()[0]]
        if self.rank > 0:
            if self._side.iprobe(0, _STOP_TAG):
                raise Stopped
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
        """Tell rank 0 that this rank cannot go on, and wait until it stops the run."""
        if self.rank == 0:
            return
        self._pending.append(self._side.isend(Trouble(line, status), 0, _SIDE_TAG))
        give_up_s = time.monotonic() + _STOP_TIMEOUT_S
        while time.monotonic() < give_up_s:
            self.poll()
            time.sleep(1e-3)

    def stop_others(self) -> None:
        """From rank 0: end the run on every other rank."""
        if self.rank > 0:
            return
        requests = [self._side.isend(None, rank, _STOP_TAG) for rank in range(1, self.size)]
        give_up_s = time.monotonic() + _STOP_TIMEOUT_S
        while requests and time.monotonic() < give_up_s:
            requests = [request for request in requests if not request.test()[0]]
            time.sleep(1e-3)

    def leave_together(self) -> None:
        """Wait until all ranks leave, or for some seconds: launchers kill whoever is left when the first one ends."""
        everybody = self._side.Ibarrier()
        give_up_s = time.monotonic() + _STOP_TIMEOUT_S
        while not everybody.Test() and time.monotonic() < give_up_s:
            time.sleep(1e-3)

    def describe(self) -> str:
        """For the results file."""
        return library_version()


Ranks = Alone | MpiRanks
