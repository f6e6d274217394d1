"""A process beside the ranks of a host: it says which rank has died, ends the others, and removes
what MPI left.

It is a script of its own, which imports nothing of emuchain, because it starts before all else of a
run and must outlive the ranks, which register one by one, before they join MPI. MPICH's launcher
learns of a death from the end of the rank's connection to it (`PMI_FD`), of which the guard holds a
copy, or as its parent, and then kills all other ranks at once: the guard must be awake before that,
and takes deaths in the order in which they came.

Of several hosts' guards that of rank 0 leads: the others report to it over connections that ranks
have made (`watch.py`), and it alone tells the user, of one death, from which the others follow.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

NOTE_BYTES, HAS_TOLD, PLACE_BYTES = 254, 255, 256
"""The page begins with a byte, which is LEAVING once the guard lets go of the launcher, a note of
what was done last, and a byte, at HAS_TOLD, which is TOLD once the guard has informed the user why
the run ends; then come the places of the ranks, filled with 0 at first.

In a place are a byte, which is LEAVING once the rank ends as it should, the number of the signal
that has asked it to end, of which it has taken note, and its name. Texts are in UTF-8.
"""
MOST_RANKS = 1023
LEAVING, JOINED, CONNECTED, ABORTING, TOLD, ENDED = 1, 2, 3, 4, 5, 6
"""What ranks say, each in a byte: that they end as they should; that they have joined MPI; that a
connection to the guard of another host comes with this byte; that the run is to end as after a
death, of which the user knows; why it ends, by a line for the user; that this rank ends at once, as
soon as the guard lets go of the launcher, and with it the run: the line follows.
"""

_ENDS, _TOLD, _ASK, _NONE = "ends", "told", "dead?", "none"
"""What guards say: that a rank ends as it should; that the user has been informed why the run ends;
the one that leads, whether a rank of the other has died, which answers that none has, or by a
report: who died how.
"""
_SAID_BYTES = 512
_HEARD_BYTES = 4096  # lines that ranks say have at most half of it

_COME_S = (
    2.0  # in which a launcher starts all ranks of a host, once the first has made itself known
)
_LEAVE_S, _LATE_S = 2.0, 2.0
_NOTICE_S = 0.3  # in which a launcher notices that a rank has ended, or has asked it to end all
_SETTLE_S = 0.05  # launchers that kill all ranks do so within milliseconds
_LOOK_S = 0.05
_FIRST_S = 10.0
_MOST_NAMED = 4
_GRACE_S = 5.0
_FOLLOWS = re.compile(r" (?:by SIGTERM|with status \d+|after SIGTERM)$")
"""How ranks end that the launcher or the MPI library ends: for another one's death, if there is
one.
"""
_LEFT_BEHIND = re.compile(
    r"(?:^| )(/dev/shm/(?:mpich_shm_|ucx_shm_posix_|sm_segment\.|vader_segment\.)\S+)$"
)


class Member(NamedTuple):
    """A rank of this host: its number, its process, and its line to the guard."""

    rank: int
    pid: int
    pid_fd: int
    line: socket.socket


class Expected(NamedTuple):
    """How many ranks the launcher has started: on this host, and in all; 0 where it does not
    say.
    """

    here: int
    in_all: int


class Peer(NamedTuple):
    """The process that made the other end of a socket, and its user."""

    pid: int
    user: int


class Shared(NamedTuple):
    """A file in shared memory."""

    path: str
    device: int
    inode: int


class Page:
    """What the ranks of this host and the guard tell one another."""

    def __init__(self, ranks: int) -> None:
        self.fd = os.memfd_create("emuchain")
        os.ftruncate(self.fd, (1 + ranks) * PLACE_BYTES)
        self._memory = mmap.mmap(self.fd, 0)

    @property
    def ends(self) -> bool:
        """Whether a rank ends as it should, so that the others will end, too."""
        return LEAVING in self._memory[PLACE_BYTES::PLACE_BYTES]

    @property
    def note(self) -> str:
        """What was done last."""
        return _text(self._memory[1 : 1 + NOTE_BYTES])

    def name(self, place: int) -> str:
        """Return the name of a rank; nothing before it has one."""
        begin = (1 + place) * PLACE_BYTES
        return _text(self._memory[begin + 2 : begin + PLACE_BYTES])

    def asked(self, place: int) -> int:
        """Return the number of the signal that has asked a rank to end; 0 if none has."""
        return self._memory[(1 + place) * PLACE_BYTES + 1]

    def leave(self, place: int) -> None:
        """Take note that a rank ends as it should."""
        self._memory[(1 + place) * PLACE_BYTES] = LEAVING

    def tell(self) -> None:
        """Say that the guard has informed the user why the run ends."""
        self._memory[HAS_TOLD] = TOLD

    def let_go(self) -> None:
        """Say that the guard lets go of the launcher, which then ends the run."""
        self._memory[0] = LEAVING


def _text(padded: bytes) -> str:
    # A text that was cut to its place may end within a character.
    return padded.rstrip(b"\0").decode("utf-8", "ignore")


class Death(NamedTuple):
    """Who has died how, and when this host's clock (`time.monotonic`) says that a guard has seen
    it.
    """

    line: str
    seen_s: float

    def report(self) -> str:
        """Return what is said of it to another host, whose clock is another one: its age in µs, and
        the line.
        """
        return f"{round((time.monotonic() - self.seen_s) * 1e6)} {self.line}"

    @classmethod
    def reported(cls, report: str) -> Death:
        """Return the death that another host has just reported."""
        age_us, _, line = report.partition(" ")
        return cls(line, time.monotonic() - int(age_us) / 1e6)


def first_of(deaths: Iterable[Death]) -> Death:
    """Return the death from which the others follow: the oldest, unless it is of a kind that only
    follows. A library may crash where the connection to a dead rank breaks, on another host and
    before the report of that death.
    """
    in_order = sorted(deaths, key=lambda death: death.seen_s)
    return next((death for death in in_order if not _FOLLOWS.search(death.line)), in_order[0])


class Others:
    """The guards of other hosts, and what they have said; each is known by its connection's
    descriptor.
    """

    def __init__(self) -> None:
        self.reports: dict[int, Death] = {}
        self.silent: set[int] = set()  # those that have been asked, and have not answered
        self.informed = self.ends = self.has_said_ends = False
        self._lines: dict[int, socket.socket] = {}

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self._lines)

    def __contains__(self, fd: int) -> bool:
        """Return whether this is one of them."""
        return fd in self._lines

    def speak(self, most_s: float) -> list[int]:
        """Return which of them say something; wait for the first to do so."""
        said = select.poll()
        for fd in self._lines:
            said.register(fd, select.POLLIN)
        return [fd for fd, _ in said.poll(most_s * 1e3)]

    def add(self, fd: int) -> None:
        """Take a connection."""
        self._lines[fd] = socket.socket(fileno=fd)

    def say(self, said: str, to: int | None = None) -> None:
        """Say something to all of them, or to one."""
        for fd, line in self._lines.items():
            if to in (None, fd):
                # All that guards say has one size, so that `hear` knows where it ends. A guard that
                # is stopped must not hold this one up: what its socket has no room for is lost.
                with contextlib.suppress(OSError):
                    line.send(
                        said.encode()[:_SAID_BYTES].ljust(_SAID_BYTES, b"\0"), socket.MSG_DONTWAIT
                    )

    def end(self) -> None:
        """Say, once, that ranks end as they should, here or there."""
        if not self.has_said_ends:
            self.has_said_ends = self.ends = True
            self.say(_ENDS)

    def tell(self) -> None:
        """Say that the user has been informed why the run ends, here or there."""
        self.informed = True
        self.say(_TOLD)

    def ask(self) -> None:
        """Ask whether a rank of theirs has died; those that have reported one need not answer."""
        self.silent = {*self._lines} - self.reports.keys()
        self.say(_ASK)

    def hear(self, fd: int) -> str:
        """Take and return what one says; nothing if it is gone, as it is once its ranks have ended:
        then `drop` it.
        """
        said = ""
        with contextlib.suppress(OSError):
            said = _text(self._lines[fd].recv(_SAID_BYTES, socket.MSG_WAITALL))
        self.silent.discard(fd)
        if said == _TOLD:
            self.informed = True
        elif said == _ENDS:
            self.ends = True
        elif said not in ("", _ASK, _NONE):
            self.reports[fd] = Death.reported(said)
        return said

    def drop(self, fd: int) -> None:
        """Close a connection."""
        self._lines.pop(fd).close()


class Guard:
    """Watches ranks from when they make themselves known at `server`; `told_fd` is where to say
    what happened.
    """

    def __init__(self, server: socket.socket, told_fd: int, expected: Expected) -> None:
        self._server, self._told_fd, self._expected = server, told_fd, expected
        self._most = min(expected.here or MOST_RANKS, MOST_RANKS)
        self._page = Page(self._most)
        self._members: list[Member] = []
        self._left: dict[int, Member] = {}
        self._starting: set[int] = set()
        self._dead_before: list[int] = []
        self._files: set[Shared] = set()
        # Copies of the ranks' connections to MPICH's launcher, and of their standard error: while
        # they are open, it does not notice that a rank has died.
        self._held: list[int] = []
        self._epoll = (
            select.epoll()
        )  # unlike `poll`, it returns events in the order in which they came
        self._places: dict[int, int] = {}
        self._others = Others()
        self._ended: set[int] = set()
        self._has_told = False

    @property
    def _leads(self) -> bool:
        return any(member.rank == 0 for member in self._members)

    @property
    def _ends(self) -> bool:
        """Whether ranks end as they should, here or on other hosts."""
        return self._page.ends or self._others.ends

    def watch(self) -> None:
        """Watch until all ranks of this host have ended."""
        self._server.setblocking(False)
        self._epoll.register(self._server, select.EPOLLIN)
        dead = self._wait(_FIRST_S)
        come_s = time.monotonic() + _COME_S
        while self._left:
            if time.monotonic() > come_s and not dead:
                self._miss()
                come_s += _COME_S
            if self._others.informed or ((dead or self._others.reports) and not self._ends):
                ends_by_itself = self._others.informed
                self._judge(dead)
                self._end_starting(_NOTICE_S if ends_by_itself else 0.0)
                self._let_go()
                self._end_all()
                break
            self._forget(dead)
            if self._left:
                dead = self._wait(_LOOK_S if self._starting else None)
        for file in self._files:
            _remove(file)

    def _wait(self, timeout_s: float | None) -> list[int]:
        """Return the places of ranks that have ended, in order, after taking what came; wait for
        the first event.
        """
        dead = []
        for fd, _ in self._epoll.poll(timeout_s):
            if fd == self._server.fileno():
                self._accept()
            elif fd in self._others:
                self._hear_other(fd)
            elif fd == self._members[self._places[fd]].line.fileno():
                self._hear(self._places[fd])
            else:
                dead.append(self._places[fd])
        self._look(self._starting)
        if self._page.ends:
            self._others.end()
            self._let_go()
        return dead

    def _accept(self) -> None:
        """Take ranks in that make themselves known."""
        while True:
            try:
                line, _ = self._server.accept()
                self._take_in(line)
            except BlockingIOError:
                return
            except (
                OSError,
                ValueError,
            ):  # such as too many open files: the others do without a guard
                self._server.close()
                return

    def _take_in(self, line: socket.socket) -> None:
        line.settimeout(_GRACE_S)
        said, fds, *_ = socket.recv_fds(line, 64, 2)
        # An abstract socket has no file whose permissions would keep other users away.
        if not fds or peer_of(line).user != os.geteuid() or len(self._members) == self._most:
            line.close()
            return
        rank, pid = map(int, said.split())
        place, member = len(self._members), Member(rank, pid, fds[0], line)
        self._members.append(member)
        self._left[place] = member
        self._starting.add(place)
        self._held += fds[1:]
        if _any_ended([member]):
            self._dead_before.append(place)
        for fd in (member.pid_fd, line.fileno()):
            self._places[fd] = place
            self._epoll.register(fd, select.EPOLLIN)
        with contextlib.suppress(OSError):  # it may have died
            socket.send_fds(line, [str(place).encode()], [self._page.fd])

    def _hear(self, place: int) -> None:
        """Take what a rank says over its line."""
        line = self._members[place].line
        said = b""
        with contextlib.suppress(OSError):
            said, fds, *_ = socket.recv_fds(line, _HEARD_BYTES, 1)
            for fd in fds:
                self._others.add(fd)
                self._epoll.register(fd, select.EPOLLIN)
        if not said:
            self._epoll.unregister(line)
        while said:
            what, said = said[0], said[1:]
            if what == JOINED:
                self._look([place])
                self._starting.discard(place)
            elif what == LEAVING:
                self._page.leave(place)
            elif what == ABORTING:
                self._others.tell()
            elif what in (TOLD, ENDED):
                line_said, _, said = said.partition(b"\n")
                why = line_said.decode("utf-8", "replace")
                self._tell(why) if what == TOLD else self._end(place, why)

    def _end(self, place: int, why: str) -> None:
        """Tell the user why a rank ends at once, if that is new, and let it; hold those that may
        still make files.

        Where another rank has died before, that is judged: launchers end the others for it, also by
        SIGTERM.
        """
        self._ended.add(place)
        if self._has_died():
            return
        if not (self._ends or self._others.informed):
            self._tell(why)
        self._page.leave(place)
        self._others.tell()
        self._hold_starting()
        self._let_go()

    def _has_died(self) -> bool:
        """Return whether a rank has ended that has not said so, in a way that does not only
        follow.
        """
        silent = [member for place, member in self._left.items() if place not in self._ended]
        return any(
            _any_ended([member]) and not _FOLLOWS.search(f" {_how(member.pid)}")
            for member in silent
        )

    def _miss(self) -> None:
        """End the run if a rank has died before it made itself known: MPICH's launcher lets the
        others wait for it.
        """
        missing = {*range(self._expected.in_all)} - {member.rank for member in self._members}
        if (
            not self._held
            or self._ends
            or self._expected.in_all != self._expected.here
            or not missing
        ):
            return
        with socket.socket(fileno=os.dup(self._held[0])) as line:
            launcher = peer_of(line).pid
        if dead := missing - ranks_below(launcher):
            self._tell(
                f"emuchain: error: {_which(dead)} on {socket.gethostname()} died while the run"
                " started"
            )
            self._others.tell()

    def _hear_other(self, fd: int) -> None:
        """Take what the guard of another host says, and answer."""
        said = self._others.hear(fd)
        if not said:
            self._epoll.unregister(
                fd
            )  # closing does not: the rank that made the connection may still hold it
            self._others.drop(fd)
        if said == _ENDS and self._leads:
            self._others.end()
        if said == _TOLD and self._leads:
            self._others.tell()
        if said == _ASK and not _any_ended(self._left.values()):  # otherwise a report is on its way
            self._others.say(_NONE)

    def _look(self, places: Iterable[int]) -> None:
        """Find the files that ranks have in shared memory."""
        for place in places:
            self._files |= shared_by(self._members[place].pid)

    def _judge(self, dead: Sequence[int]) -> None:
        """Tell the user which rank has died first, or have the guard that leads do so."""
        seen_s, others = time.monotonic(), self._others
        seen = [Death(self._seen(dead[0]), seen_s)] if dead else []
        if self._ends or others.informed:
            return
        if self._leads:
            others.ask()
        elif seen:
            others.say(seen[0].report())
        until_s = time.monotonic() + _GRACE_S
        while not self._is_settled and (left_s := until_s - time.monotonic()) > 0:
            self._forget(self._wait(left_s))
        if self._ends or others.informed:
            return
        line = first_of([*seen, *others.reports.values()]).line
        done = f"; last step done: {self._page.note}" if self._page.note else ""
        self._tell(f"emuchain: error: {line}{done}")
        others.tell()

    def _tell(self, line: str) -> None:
        """Tell the user, who has not been informed, why the run ends."""
        if not self._has_told:
            self._has_told = True
            with contextlib.suppress(OSError):
                os.write(self._told_fd, f"{line}\n".encode())
            self._page.tell()

    @property
    def _is_settled(self) -> bool:
        """Whether the guards of other hosts have said what was asked, or that what has happened is
        known.
        """
        others = self._others
        return self._ends or others.informed or not others or (self._leads and not others.silent)

    def _seen(self, place: int) -> str:
        """Return who has died, and how; nothing if ranks end as they should."""
        how = _how(self._members[place].pid)  # at once: the launcher may wait for it
        self._look(self._left)
        self._settle()
        if self._ends:
            return ""
        number = self._page.asked(place)
        return self._whom(place, f"{how} after {signal.Signals(number).name}" if number else how)

    def _settle(self) -> None:
        """Let launchers kill what they kill, and ranks say what they say; hear other guards at
        once, to date deaths.
        """
        until_s = time.monotonic() + _SETTLE_S
        while (left_s := until_s - time.monotonic()) > 0:
            for fd in self._others.speak(left_s):
                self._hear_other(fd)
        self._wait(0.0)

    def _whom(self, place: int, how: str) -> str:
        """Return who has died first, and how."""
        host, first = socket.gethostname(), self._members[place].rank
        come = {member.rank for member in self._members}
        all_came = len(come) >= self._expected.here
        if all_came and place not in self._dead_before:
            return f"{self._page.name(place) or f'rank {first} on {host}'} {how}"
        # One that has not come may have died before, and the launcher may have ended the others for
        # it.
        by_launcher = not all_came and "SIGTERM" in how
        suspects = (
            set[int]()
            if by_launcher
            else {first, *(self._members[dead].rank for dead in self._dead_before)}
        )
        if not all_came:
            suspects |= {*range(self._expected.in_all)} - come
        is_known = self._expected.in_all == self._expected.here
        return f"{_which(suspects) if is_known else 'a rank'} on {host} died while the run started"

    def _end_starting(self, notice_s: float) -> None:
        """End ranks that might still make files in shared memory, after finding those that they
        have made.

        Those that end by themselves come first, and the launcher has `notice_s` for what they have
        said to it.
        """
        self._hold_starting()
        until_s = time.monotonic() + _LEAVE_S
        while self._ended & self._left.keys() and (left_s := until_s - time.monotonic()) > 0:
            self._forget(self._wait(left_s))
        until_s = time.monotonic() + notice_s
        while self._starting and (left_s := until_s - time.monotonic()) > 0:
            self._forget(self._wait(left_s))
        self._signal(self._starting, signal.SIGKILL)

    def _hold_starting(self) -> None:
        self._signal(self._starting - self._ended, signal.SIGSTOP)
        self._look(self._starting)

    def _end_all(self) -> None:
        """Let the launcher end the ranks, also late ones; kill those that it has not ended in some
        seconds.
        """
        late_s = time.monotonic() + _LATE_S
        until_s = time.monotonic() + _GRACE_S
        while self._left or (
            len(self._members) < self._expected.here and time.monotonic() < late_s
        ):
            self._forget(
                self._wait(max(0.0, (until_s if self._left else late_s) - time.monotonic()))
            )
            if self._left and time.monotonic() >= until_s:
                self._signal(self._left, signal.SIGKILL)
                until_s = time.monotonic() + _GRACE_S

    def _signal(self, places: Iterable[int], number: signal.Signals) -> None:
        for place in places:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self._members[place].pid_fd, number)

    def _forget(self, places: list[int]) -> None:
        """Forget ranks that have ended."""
        for place in places:
            member = self._left.pop(place)
            self._starting.discard(place)
            self._epoll.unregister(member.pid_fd)
            os.close(member.pid_fd)
            member.line.close()

    def _let_go(self) -> None:
        for fd in self._held:
            os.close(fd)
        self._held = []
        self._page.let_go()


def peer_of(line: socket.socket) -> Peer:
    """Return who is at the other end of a socket on this host."""
    # Linux's `struct ucred`: process, user and group.
    pid, user, _ = struct.unpack("3i", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return Peer(pid, user)


def shared_by(pid: int) -> set[Shared]:
    """Return MPI's files in shared memory that a process maps, or is about to map."""
    files = set()
    for line in (*_maps(pid), *_open_files(pid)):
        if name := _LEFT_BEHIND.search(line):
            with contextlib.suppress(OSError):
                stat = os.stat(name[1], follow_symlinks=False)
                files.add(Shared(name[1], stat.st_dev, stat.st_ino))
    return files


def _maps(pid: int) -> Iterator[str]:
    with (
        contextlib.suppress(OSError),
        open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as maps,
    ):
        yield from maps


def _open_files(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                yield os.readlink(f"/proc/{pid}/fd/{fd}")


def ranks_below(launcher: int) -> set[int]:
    """Return the ranks that processes below one of MPICH's launcher are, or will be once they have
    started.
    """
    parents, ranks = dict[int, int](), dict[int, int]()
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        with contextlib.suppress(OSError, ValueError, IndexError):
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                # Field 4, `ppid`, counted from behind the name, which may hold anything.
                parents[pid] = int(file.read().rpartition(")")[2].split()[1])
            with open(f"/proc/{pid}/environ", "rb") as environment:
                # Each variable follows a zero byte; with one in front, so does the first of them.
                ranks[pid] = int(
                    (b"\0" + environment.read()).split(b"\0PMI_RANK=")[1].split(b"\0")[0]
                )

    def is_below(pid: int) -> bool:
        return pid == launcher or (pid in parents and is_below(parents[pid]))

    return {rank for pid, rank in ranks.items() if is_below(pid)}


def _which(ranks: set[int]) -> str:
    """Return what to call some ranks of which one has died."""
    return f"rank {' or '.join(map(str, sorted(ranks)))}" if len(ranks) <= _MOST_NAMED else "a rank"


def _any_ended(members: Iterable[Member]) -> bool:
    ended = select.poll()
    for member in members:
        ended.register(member.pid_fd, select.POLLIN)
    return bool(ended.poll(0))


def _how(pid: int) -> str:
    """Return how a process that has not been waited for has ended, as far as the system tells."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # Field 52, `exit_code`. The name, field 2, may hold spaces and parentheses: counted
            # behind it.
            status = int(file.read().rpartition(")")[2].split()[49])
        # As wait() has it: the signal in the low 7 bits, the exit status in the byte above.
        number = status & 0x7F
        return (
            f"was killed by {signal.Signals(number).name}"
            if number
            else f"ended with status {status >> 8}"
        )
    except (OSError, ValueError, IndexError):
        return "died"


def _remove(file: Shared) -> None:
    """Remove a file of this user's that the ranks have left in shared memory, if no process uses it
    any more.
    """
    with contextlib.suppress(OSError):
        stat = os.stat(file.path, follow_symlinks=False)
        # Another run may have made a file of the same name meanwhile.
        if (stat.st_dev, stat.st_ino, stat.st_uid) != (file.device, file.inode, os.geteuid()):
            return
        # A rank that is stopped, or a process of another run, may still have it open.
        used = (file in shared_by(int(name)) for name in os.listdir("/proc") if name.isdigit())
        if not any(used):
            os.unlink(file.path)


if __name__ == "__main__":
    server, stderr_fd, expected = (
        socket.socket(fileno=int(sys.argv[1])),
        int(sys.argv[2]),
        Expected(*map(int, sys.argv[3:])),
    )
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)  # they are for the ranks, with which it ends
    try:
        guard = Guard(server, stderr_fd, expected)
    except (
        OSError
    ):  # such as a limit on the size of files, also of its page: ranks do without a guard
        sys.exit()
    guard.watch()
