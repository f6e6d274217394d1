"""The ranks of a run, and their communication outside the emulated chain.

`SingleProcess` is one process without MPI, `MpiRanks` the ranks of a communicator. Rank 0 leads: it
reads the command line, and gives the others tasks until it dismisses them. Progress and failures
are reported to it through the side channel; when a run cannot continue, it stops all other ranks.
Every wait here sleeps, because ranks may outnumber cores.
"""

from __future__ import annotations

import contextlib
import faulthandler
import math
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from ..comm import ALL_RANKS
from .end_request import Dismissed, EndRequest, RankFailed, Stopped
from .processes import be_nicer, is_stopped, niceness, tell

if TYPE_CHECKING:  # most runs have no ranks to watch
    from .stall import Watchdog
    from .watch import Watch


class SingleProcess:
    """One process without MPI, which offers what `MpiRanks` does."""

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

    def _nothing(self, *_: object, **__: object) -> None:
        """Do nothing: there are no other ranks to tell, start, stop or leave; whoever started this
        one sees its end.
        """

    watch = name = share_processors = note = start = dismiss = report_failure = outlive = (
        stop_others
    ) = _nothing
    leave_together = abandon = free = _nothing

    def watch_progress(self, timeout_s: float) -> contextlib.AbstractContextManager[None]:
        """Do nothing: this rank does not wait for others."""
        return contextlib.nullcontext()

    def away(self) -> contextlib.AbstractContextManager[None]:
        """Do nothing: no rank waits for this one."""
        return contextlib.nullcontext()

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
        """Return the number of the signal that asks this run to save its state and end, or 0; see
        `EndRequest`.
        """
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

    @property
    def ends(self) -> bool:
        """Whether the run ends, for a reason that another process has reported."""
        return False

    def abort(self, status: int, *, first: bool) -> NoReturn:
        """Exit."""
        os._exit(status)

    def describe(self) -> str:
        """Return the MPI library's name and version, for the results file."""
        return "none"


_SIDE_TAG, _STOP_TAG, _TASK_TAG, _TURN_TAG = 4001, 4002, 4003, 4004
_NAP_S = 1e-3
_STOP_TIMEOUT_S = 30.0  # a rank may be in an operation that cannot be interrupted
_GUARD_TIMEOUT_S = 3.0
_FAILURE_TIMEOUT_S = 120.0  # rank 0 does not listen while it compiles or plans


class Transport(Protocol):
    """What carries a run's messages between ranks: MPI reads and writes its buffers until it is
    closed.
    """

    def drain(self) -> bool:
        """Take what has arrived; return whether all that was sent from here has left."""

    def close(self) -> None:
        """End all communication, when nothing is under way."""


class MpiRanks:
    """The ranks of a communicator, which this object owns.

    `watch` is this rank's, if the guard knows it already; `end_request` says what signals have
    asked this process.
    """

    def __init__(
        self, comm: Any, watch: Watch | None = None, end_request: EndRequest | None = None
    ) -> None:
        self.comm = comm
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()
        self.on_object: Callable[[Any], None] = lambda _: None
        self.running = False
        self.end_request = end_request or EndRequest()
        self.end_request.on_note = self._asked
        self._side = comm.Clone()
        self.exchange_comm = comm.Clone()
        self._pending: list[Any] = []
        self.transport: Transport | None = (
            None  # kept here, so that its buffers outlive a run that fails
        )
        self._settled = 0
        self._settling: Any = None  # the last request
        own = (
            socket.gethostname(),
            os.getpid(),
            "" if watch is None else watch.guard,
            os.sched_getaffinity(0),
        )
        hosts, pids, guards, cores = zip(*comm.allgather(own), strict=True)
        self._on_this_host = [rank for rank, host in enumerate(hosts) if host == hosts[self.rank]]
        # Launchers may bind each rank to cores of its own; all ranks together have the union.
        self._cores = len(set().union(*(cores[rank] for rank in self._on_this_host)))
        self._names = [f"rank {rank} on {host}" for rank, host in enumerate(hosts)]
        self._pids = {rank: pids[rank] for rank in self._on_this_host}
        self._watch = watch
        self.watchdog: Watchdog | None = None
        self._niceness = os.getpriority(os.PRIO_PROCESS, 0)
        if watch is not None:
            watch.join(self._names[self.rank])
            if guards[0] and len({*guards} - {""}) > 1:
                from .watch import connect_guards

                connect_guards(comm, guards, watch)

    def watch(self) -> None:
        """Have the guard of this host watch this rank from now on, if it does not yet; and all
        ranks one another.
        """
        from .stall import Peers, Watchdog

        if self._watch is None:
            from .watch import introduce

            self._watch = introduce(self.rank)
            self._watch.join(self._names[self.rank])
        self.watchdog = Watchdog(self._side, Peers(self.rank, self._names, self._pids), self._noted)

    def name(self, hosted: Callable[[int], str]) -> None:
        """Add to the names of ranks what each hosts."""
        self._names[:] = [f"{name} ({hosted(rank)})" for rank, name in enumerate(self._names)]
        if self._watch is not None:
            self._watch.name(self._names[self.rank])

    @property
    def idles(self) -> bool:
        """Whether a processor has nothing to do while this rank waits: ranks do not outnumber those
        of its host.
        """
        return self.size > 1 and len(self._on_this_host) <= self._cores

    def share_processors(self, work: Sequence[int]) -> None:
        """Share this host's processors, where ranks outnumber them, in proportion to `work`, which
        is given by rank.
        """
        if len(self._on_this_host) > self._cores:
            be_nicer(
                niceness(work[self.rank], max(work[rank] for rank in self._on_this_host)),
                self._niceness,
            )

    @contextlib.contextmanager
    def watch_progress(self, timeout_s: float) -> Iterator[None]:
        """End the run where nothing moves for `timeout_s`, unless that is 0; for all ranks
        together.

        Before and after, when a rank may do alone what takes any time, only ranks that are stopped
        end the run.
        """
        watchdog = self.watchdog
        if watchdog is None or not timeout_s:
            self.watchdog = None
            yield
            return
        with watchdog.strictly(timeout_s):
            yield

    def _asked(self, number: int) -> None:
        if self._watch is not None:
            self._watch.asked(number)

    def _noted(self) -> str:
        return "" if self._watch is None else self._watch.noted

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """Do what may take any time, such as writing a file, without being taken for a rank that is
        stopped.
        """
        if self.watchdog is not None:
            self.watchdog.away(True)
        yield
        if self.watchdog is not None:
            self.watchdog.away(False)

    def note(self, text: str) -> None:
        """Leave word of what the run has done last, for the case that a rank dies."""
        if self._watch is not None:
            self._watch.note(text)

    def start(self, task: Callable[[Ranks], None]) -> None:
        """Send all other ranks a task as a pickle, from rank 0; from then on any rank may fail
        alone.
        """
        self.running = self.size > 1
        self._send_all(task, _TASK_TAG)

    def dismiss(self, status: int) -> None:
        """Make all other ranks exit with this status, from rank 0; there are no more tasks."""
        self._send_all(Dismissed(status), _STOP_TAG)
        _nap_until(self._sent, _STOP_TIMEOUT_S)

    def follow(self) -> NoReturn:
        """Run the tasks that rank 0 sends, in order; for all ranks but 0.

        Raises:
            Dismissed: there are no more tasks.
        """
        while True:
            task = self._wait_for(0, _TASK_TAG)
            self.running = True
            task(self)
            self.running = False

    @property
    def on_this_host(self) -> Sequence[int]:
        """The ranks of this rank's host, itself among them."""
        return self._on_this_host

    def in_turn(self, task: Callable[[], None]) -> None:
        """Run a task on the first rank of each machine, and then on the others."""
        first, *others = self._on_this_host
        if self.rank != first:
            self._wait_for(first, _TURN_TAG)
        task()
        if self.rank == first:
            self._pending += [self._side.isend(None, rank, _TURN_TAG) for rank in others]

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks, on rank 0; elsewhere an empty list."""
        self._wait_for_all()
        # mpi4py's `gather` returns None on all ranks but the root.
        return self.comm.gather(value) or []

    def share(self, value: Any) -> list[Any]:
        """Return the values of all ranks, on every rank."""
        self._wait_for_all()
        return self.comm.allgather(value)

    def deal(self, values: list[Any]) -> Any:
        """Return this rank's of the values that rank 0 has, one for each rank; elsewhere they do
        not matter.
        """
        self._wait_for_all()
        return self.comm.scatter(values if self.rank == 0 else None)

    def end_wanted(self) -> int:
        """Return the number of the signal that asks this run to save its state and end, or 0: the
        same on all ranks.

        For all ranks together, at a mini-batch boundary at which the chain has drained. A signal to
        any rank counts.
        """
        return max(self.share(self.end_request.noted))

    def settling(self) -> Callable[[], bool]:
        """Return a function that returns true once all ranks have called `settling`."""
        self._settled += 1
        self._settling = self.comm.Ibarrier()
        settled: Callable[[], bool] = self._settling.Test
        return settled

    def send_to_root(self, value: Any) -> None:
        """Send rank 0 an object, without waiting."""
        if self.rank == 0:
            self.on_object(value)
        else:
            self._pending.append(self._side.isend(value, 0, _SIDE_TAG))

    def poll(self) -> bool:
        """Deliver what has arrived; return whether anything had. A pump of the host.

        Raises:
            Stopped: rank 0 ends the run.
            Dismissed: rank 0 has no more tasks.
            RankFailed: on rank 0, another rank has failed.
            NoProgress: no rank moves.
        """
        self._sent()
        if self.watchdog is not None:
            self.watchdog.poll()
        if self.rank > 0:
            if self._side.iprobe(0, _STOP_TAG):
                raise self._side.recv(None, 0, _STOP_TAG)
            return False
        moved = False
        while self._side.iprobe(tag=_SIDE_TAG):
            value = self._side.recv(tag=_SIDE_TAG)
            if isinstance(value, RankFailed):
                raise value
            self.on_object(value)
            moved = True
        return moved

    def report_failure(self, line: str, status: int) -> None:
        """Report this rank's failure to rank 0, and wait until rank 0 stops this rank.

        Where rank 0 is stopped itself, the first of its host that is not tells the user.
        """
        if self.rank == 0:
            return
        self._pending.append(self._side.isend(RankFailed(line, status), 0, _SIDE_TAG))
        _nap_until(lambda: self.poll() or 0 in self._stopped(), _FAILURE_TIMEOUT_S)
        stopped = self._stopped()
        if 0 in stopped and self.rank == min(self._pids.keys() - stopped):
            tell(line)

    def outlive(self, error: Exception) -> None:
        """Give guard and launcher time to end this rank, if MPI itself has failed, as it does when
        a rank dies.
        """
        from mpi4py import MPI

        if self._watch is not None and isinstance(error, MPI.Exception):
            time.sleep(_GUARD_TIMEOUT_S)

    def stop_others(self, status: int, line: str) -> None:
        """End the run on every other rank, from rank 0, with this exit status and this reason."""
        if self.rank > 0:
            return
        # Earlier messages may never be received: a failed rank takes no task.
        before, self._pending = self._pending, []
        self._send_all(Stopped(status, line), _STOP_TAG)
        # A rank that is stopped takes no message: waiting would only use up the time.
        _nap_until(lambda: self._sent() or bool(self._stopped()), _STOP_TIMEOUT_S)
        self._pending = before

    def leave_together(self, timeout_s: float = _STOP_TIMEOUT_S) -> None:
        """Wait, for a limited time, until all ranks leave; then finalise MPI, if they do.

        When a rank exits without finalising MPI, launchers kill the others and report that in place
        of their status. MPI should ignore messages that no rank will receive; if it waits for them,
        this process exits after `timeout_s` with status 1.
        """
        from mpi4py import MPI

        self._end_as_it_should()
        all_leave = self._side.Ibarrier().Test
        # A rank that is stopped would never come to MPI_Finalize, and that would wait for it for
        # ever.
        if (
            not _nap_until(lambda: all_leave() or bool(self._stopped()), timeout_s)
            or not all_leave()
        ):
            return
        with open(os.devnull, "w") as nowhere:
            # MPI_Finalize holds the GIL; this watchdog does not need it.
            faulthandler.dump_traceback_later(timeout_s, exit=True, file=nowhere)
            MPI.Finalize()
            faulthandler.cancel_dump_traceback_later()

    @property
    def ends(self) -> bool:
        """Whether the run ends, for a reason that another process has reported: a rank has died, or
        is stopped.
        """
        return self._watch is not None and self._watch.ends

    def abort(self, status: int, *, first: bool) -> NoReturn:
        """End without MPI's help, where a rank is stopped: one is to be the `first`, and the
        launcher ends the others.

        Its status is the run's. MPI adds nothing to what has been said. Guards end what the
        launcher leaves.
        """
        self._end_as_it_should(aborts=True)
        if not first:
            time.sleep(_GUARD_TIMEOUT_S)
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        self.comm.Abort(status)
        os._exit(status)

    def _stopped(self) -> set[int]:
        """Return the ranks of this host that are stopped, as by SIGSTOP; they neither answer nor
        leave.
        """
        return {rank for rank, pid in self._pids.items() if is_stopped(pid)}

    def _end_as_it_should(self, *, aborts: bool = False) -> None:
        if self._watch is not None:
            self._watch.leave(aborts=aborts)

    def free(self) -> None:
        """Free all communicators; call on all ranks, after the last message. The process has its
        own priority again.
        """
        _nap_until(self._sent)
        be_nicer(0, self._niceness)
        for comm in (self._side, self.exchange_comm, self.comm):
            comm.Free()

    def abandon(self, timeout_s: float = _STOP_TIMEOUT_S) -> None:
        """Free all communicators after a failure that all ranks have been informed of; call on all
        ranks.

        First all messages that are under way are taken, since MPI may write to their buffers until
        then. Where a rank does not take part in time, communicators and buffers stay as they are.
        """

        def drained() -> bool:
            while self._side.iprobe():
                self._side.recv()
            # A list, so that both make progress at every look; `and` would stop at the first.
            return all([self._sent(), self.transport is None or self.transport.drain()])

        if not _nap_until(drained, timeout_s):
            return
        with_all, settled = self._side.Ibarrier().Test, self._settled
        if not _nap_until(lambda: drained() and with_all(), timeout_s):
            return
        # A rank that failed has not settled where others have; all must, as often, before
        # communicators are freed.
        for _ in range(settled, max(self._side.allgather(settled))):
            self.settling()
        if self._settling is not None:
            self._settling.Wait()
        if self.transport is not None:
            self.transport.close()
            self.transport = None
        self.free()

    def describe(self) -> str:
        """Return the MPI library's name and version, for the results file."""
        from mpi4py import MPI

        return " ".join(MPI.Get_library_version().split("\n")[0].split()[:4]).strip(" ,")

    def _send_all(self, value: Any, tag: int) -> None:
        self._pending += [self._side.isend(value, rank, tag) for rank in range(1, self.size)]

    def _sent(self) -> bool:
        """Drop completed requests; return whether none is left."""
        if self._pending:
            self._pending = [request for request in self._pending if not request.test()[0]]
        return not self._pending

    def _wait_for(self, rank: int, tag: int) -> Any:
        """Return the next object from a rank with a tag, unless this rank is stopped first."""

        self._nap_until(lambda: bool(self._side.iprobe(rank, tag)))
        return self._side.recv(None, rank, tag)

    def _wait_for_all(self) -> None:
        """Wait until all ranks have called this; MPI's own wait would keep a core busy."""
        self._nap_until(self.settling())

    def _nap_until(self, done: Callable[[], bool]) -> None:
        def is_done() -> bool:
            self.poll()
            if done():
                return True
            if self.watchdog is not None:
                self.watchdog.idle(lambda: [ALL_RANKS])
            return False

        _nap_until(is_done)
        if self.watchdog is not None:
            self.watchdog.busy()


Ranks = SingleProcess | MpiRanks


def _nap_until(done: Callable[[], bool], timeout_s: float = math.inf) -> bool:
    """Poll, sleeping in between, until done or out of time; return whether it is done."""
    give_up_s = time.monotonic() + timeout_s
    while not (is_done := done()) and time.monotonic() < give_up_s:
        time.sleep(_NAP_S)
    return is_done
