"""The watchdog: detects that a run makes no progress, reports which rank waits for which, and ends
it.

A rank that has had nothing to do for `timeout_s` asks all others. Those that answer say what they
wait for; one that does not is stopped, or unreachable, or in a long operation. The lowest rank that
asks judges.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from ..comm import Awaited
from .processes import is_stopped, tell

STALL_STATUS = 3
"""Exit status of a run without progress."""

_TAG = 4005
_TIMEOUT_S = 60.0
_GRACE_S = 3.0
_LOOK_S = 0.1
_SEND_S = 0.5  # a rank that is stopped receives nothing
_PATIENCE = 10
"""Number of timeouts to wait for a rank that neither answers nor is stopped, because it may be
computing.
"""


class NoProgress(Exception):
    """The run makes no progress; `str` is a line for the user, which has been printed.

    It was found `here`, or by another rank, which ends the run.
    """

    def __init__(self, line: str, *, here: bool) -> None:
        super().__init__(line)
        self.here = here


class Question(NamedTuple):
    """Asks another rank for an answer."""


class Answer(NamedTuple):
    """What a rank waits for, for how long it has had nothing to do, in s, and which ranks of its
    host are stopped.
    """

    waits: Sequence[Awaited]
    idle_s: float
    stopped: frozenset[int] = frozenset()


class Away(NamedTuple):
    """Whether a rank is busy for an unknown time, such as writing a file."""

    is_away: bool


class Verdict(NamedTuple):
    """The run makes no progress."""

    line: str


class Peers(NamedTuple):
    """The ranks of a run: this one, the names of all, and of those on this host the process
    numbers.
    """

    rank: int
    names: Sequence[str]
    pids: dict[int, int]

    def stopped(self) -> frozenset[int]:
        """Return the ranks of this host that are stopped, as by SIGSTOP or a debugger."""
        return frozenset(rank for rank, pid in self.pids.items() if is_stopped(pid))


class Watchdog:
    """A rank's watchdog. It needs its own communicator, `comm`; `note` describes the last step
    done.
    """

    def __init__(
        self,
        comm: Any,
        peers: Peers,
        note: Callable[[], str] = lambda: "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._comm, self._peers, self._note, self._clock = comm, peers, note, clock
        self._timeout_s, self._is_strict = _TIMEOUT_S, False
        self._since_s: float | None = None
        self._asked_s: float | None = None
        self._asks_from_s = 0.0
        self._looks_from_s = 0.0
        self._waits: Callable[[], Sequence[Awaited]] = list
        self._answers: dict[int, Answer] = {}
        self._away: set[int] = set()
        self._pending: list[Any] = []

    @contextlib.contextmanager
    def strictly(self, timeout_s: float) -> Iterator[None]:
        """Take ranks that do not answer for lost, too, while all are in the same phase of a run."""
        before, self._timeout_s, self._is_strict = self._timeout_s, timeout_s, True
        self.busy()
        yield
        self._timeout_s, self._is_strict = before, False

    def busy(self) -> None:
        """Take note that this rank has something to do."""
        self._since_s = self._asked_s = None

    def idle(self, awaited: Callable[[], Sequence[Awaited]]) -> None:
        """Take note that this rank has nothing to do; `awaited` returns what it waits for.

        Raises:
            NoProgress: the run makes no progress.
        """
        now_s = self._clock()
        if self._since_s is None:
            self._since_s = now_s
        self._waits = awaited
        if self._asked_s is not None:
            if now_s >= self._asked_s + min(_GRACE_S, self._timeout_s / 2):
                self._judge(now_s, now_s - self._since_s)
        elif now_s >= max(self._since_s + self._timeout_s, self._asks_from_s):
            self._asked_s, self._answers = now_s, {}
            self._send_all(Question())

    def poll(self) -> None:
        """Answer other ranks.

        Raises:
            NoProgress: another rank has found that the run makes no progress.
        """
        now_s = self._clock()
        if now_s < self._looks_from_s:
            return
        # Hosts poll all the time, and a look is a call of MPI: some a second are enough.
        self._looks_from_s = now_s + _LOOK_S
        self._pending = [request for request in self._pending if not request.test()[0]]
        while (message := self._comm.improbe(tag=_TAG)) is not None:
            rank, said = message.recv()
            self._take(rank, said, now_s)

    def away(self, is_away: bool) -> None:
        """Tell the others that this rank will not answer for any time, or that it does again."""
        self._send_all(Away(is_away))

    def _take(self, rank: int, said: object, now_s: float) -> None:
        if isinstance(said, Question):
            idle_s = 0.0 if self._since_s is None else now_s - self._since_s
            self._send(rank, Answer(self._waits() if idle_s else [], idle_s, self._peers.stopped()))
            if rank < self._peers.rank:  # which judges
                self._asked_s, self._asks_from_s = None, now_s + self._timeout_s
        elif isinstance(said, Answer):
            self._answers[rank] = said
        elif isinstance(said, Away):
            (self._away.add if said.is_away else self._away.discard)(rank)
        elif isinstance(said, Verdict):
            raise NoProgress(said.line, here=False)

    def _judge(self, now_s: float, idle_s: float) -> None:
        others = {*range(len(self._peers.names))} - {self._peers.rank}
        silent = others - self._answers.keys()
        # A rank that had something to do meanwhile: the run moves, and those who wait are not
        # stuck.
        moves = any(answer.idle_s < self._timeout_s / 2 for answer in self._answers.values())
        waiting = {
            self._peers.rank: Answer(self._waits(), idle_s, self._peers.stopped()),
            **self._answers,
        }
        stopped = silent & _stopped(waiting)
        computes = bool(silent & self._peers.pids.keys() - stopped)
        may_compute = computes and idle_s < _PATIENCE * self._timeout_s
        if not stopped and (not self._is_strict or moves or silent & self._away or may_compute):
            self._asked_s, self._asks_from_s = None, now_s + self._timeout_s
            return
        line = stall_line(self._peers, waiting, stopped or silent, idle_s, self._note())
        tell(line)
        self._send_all(Verdict(line))
        # The others should get the verdict before this rank ends; one that is stopped never takes
        # it.
        while self._pending and self._clock() < now_s + _SEND_S:
            time.sleep(1e-3)
            self._pending = [request for request in self._pending if not request.test()[0]]
        raise NoProgress(line, here=True)

    def _send_all(self, said: object) -> None:
        for rank in range(len(self._peers.names)):
            if rank != self._peers.rank:
                self._send(rank, said)

    def _send(self, rank: int, said: object) -> None:
        self._pending.append(self._comm.isend((self._peers.rank, said), rank, _TAG))


def stall_line(
    peers: Peers, waiting: dict[int, Answer], blamed: set[int], idle_s: float, note: str
) -> str:
    """Return the line that says which ranks hold up a run, and who waits for them on what since
    when.
    """
    stopped, whose = _stopped(waiting), []
    for rank in sorted(blamed):
        whose.append(
            f"{peers.names[rank]} {'is stopped' if rank in stopped else 'does not answer'}"
        )
    rows = _rows(waiting, {None, *blamed}) if blamed else []
    rows = rows or _rows(waiting, None)  # who waits for those that wait for them
    done = [f"last step done: {note}"] if note else []
    why = ", ".join(whose) or "all ranks wait for one another"
    return f"emuchain: error: no progress for {idle_s:.0f} s: " + "; ".join([why, *rows[:4], *done])


def _rows(waiting: dict[int, Answer], on: set[int | None] | None) -> list[str]:
    """Return who waits for whom since when: on some ranks, or on any."""
    rows = []
    for rank, answer in sorted(waiting.items()):
        texts = [awaited.text for awaited in answer.waits if on is None or awaited.rank in on][:2]
        since = time.strftime("%H:%M:%S", time.localtime(time.time() - answer.idle_s))
        rows += [f"since {since} rank {rank} waits for {' and '.join(texts)}"] if texts else []
    return rows


def _stopped(answers: dict[int, Answer]) -> set[int]:
    """Return the ranks that are stopped, each of which another rank of its host has seen."""
    return {rank for answer in answers.values() for rank in answer.stopped}
