"""Registration of a rank with the guard of its host (`guard.py`), so that its death is noticed;
guards of many hosts.

The ranks of a host need no MPI for that: they meet at a socket whose name follows from their
launcher. The first one to come starts the guard there.

From the guard of each other host, a connection goes to that of rank 0's host. Ranks make them,
because they find one another by MPI, and hand them over. A guard that gets none tells what it
knows.

    host 0:  ranks 0 1 2             host 1:  ranks 3 4 5
             guard, which leads  <---------   guard                made by ranks 0 and 3, the first of each guard
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import mmap
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from . import guard
from .guard import (
    ABORTING,
    CONNECTED,
    ENDED,
    HAS_TOLD,
    JOINED,
    LEAVING,
    MOST_RANKS,
    NOTE_BYTES,
    PLACE_BYTES,
    TOLD,
    Expected,
    peer_of,
)
from .processes import launchers_stderr

_TIMEOUT_S = 10.0
_LET_GO_S = 0.5
_TELL_S = 3.0
_NAP_S = 1e-3
_TRY_S = 1.0  # to reach another host's guard, at each of its addresses
_GET_ADDRESS = 0x8915  # SIOCGIFADDR
_MOST_NAME, _MOST_LINE = 80, 500
_SIZES = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE"), ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE")
"""Where launchers say how many ranks are on this host, and how many there are."""


class Watch:
    """This rank's line to the guard of its host, and its place in their page; without a line it
    does nothing.

    `guard` is what no other guard of the run is called; nothing if there is none. `is_first` says
    whether this rank was the first of its host to come.
    """

    def __init__(
        self, line: socket.socket | None = None, guard: str = "", *, is_first: bool = False
    ) -> None:
        self._line, self.guard, self.is_first = line, guard, is_first
        self._page: mmap.mmap | None = None
        self._place, self._leaves = 0, False
        if line is not None:
            atexit.register(self.leave)

    def join(self, name: str) -> None:
        """Tell the guard that this rank has joined MPI, and what it is called."""
        self._say(JOINED)
        self.name(name)

    def note(self, text: str) -> None:
        """Leave word of what the run has done last, for the case that a rank dies."""
        self._write(1, NOTE_BYTES, text)

    def asked(self, number: int) -> None:
        """Leave word that a signal has asked this rank to end, and that it has only taken note."""
        page = self._shared()
        if page is not None:
            page[(1 + self._place) * PLACE_BYTES + 1] = number

    def connect(self, line: socket.socket) -> None:
        """Give the guard a connection to that of another host."""
        if self._line is not None:
            with contextlib.suppress(OSError):
                socket.send_fds(self._line, [bytes([CONNECTED])], [line.fileno()])

    @property
    def ends(self) -> bool:
        """Whether the run ends, for a reason that has been reported."""
        page = self._shared()
        return page is not None and LEAVING in page[::PLACE_BYTES]

    @property
    def noted(self) -> str:
        """The last note of a rank of this host."""
        page = self._shared()
        return (
            "" if page is None else page[1 : 1 + NOTE_BYTES].rstrip(b"\0").decode("utf-8", "ignore")
        )

    def name(self, text: str) -> None:
        """Set what this rank is called."""
        if self._shared() is not None:
            self._write((1 + self._place) * PLACE_BYTES + 2, PLACE_BYTES - 2, text)

    def leave(self, *, aborts: bool = False) -> None:
        """Tell the guard that this rank is about to end, and that this is as it should be.

        The guard then lets go of the launcher, so that this learns of each rank's end at once. If
        this rank `aborts` the run, guards end all ranks that the launcher leaves, such as those
        that are stopped.
        """
        if self._leaves:
            return
        self._leaves = True
        page = self._shared()
        if page is not None:
            # To the page before the line: the guard may see this rank's end before it reads what it
            # said.
            page[(1 + self._place) * PLACE_BYTES] = LEAVING
        self._say(LEAVING)
        if aborts:
            self._say(ABORTING)
        self._wait_until(0, LEAVING, _LET_GO_S)

    def tell(self, line: str) -> bool:
        """Have the guard tell the user by a line why the run ends, unless it has reported one;
        return whether it has.

        One process tells it, since several ranks may get a signal at once.
        """
        self._say(TOLD, line)
        self._wait_until(HAS_TOLD, TOLD, _TELL_S)
        page = self._shared()
        return page is not None and page[HAS_TOLD] == TOLD

    def end(self, line: str) -> bool:
        """Have the guard tell the user by a line, unless it has reported one, and end the run with
        this rank.

        Return whether there is a guard. This rank is to exit then.
        """
        if self._line is not None:
            self._line.settimeout(_TELL_S)
        self._say(ENDED, line)
        self._wait_until(0, LEAVING, _TELL_S)  # the guard has let go of the launcher
        return self._page is not None

    def _wait_until(self, place: int, what: int, most_s: float) -> None:
        """Wait until the guard says something in its page."""
        page, until_s = self._shared(), time.monotonic() + most_s
        # A write to shared memory wakes no process, so the page is polled.
        while page is not None and page[place] != what and time.monotonic() < until_s:
            time.sleep(_NAP_S)

    def _say(self, what: int, line: str | None = None) -> None:
        if self._line is not None:
            # A line ends at its break: what is said must have no other.
            text = (
                b"" if line is None else " ".join(line[:_MOST_LINE].splitlines()).encode() + b"\n"
            )
            with contextlib.suppress(OSError):
                self._line.send(bytes([what]) + text, socket.MSG_DONTWAIT)

    def _write(self, begin: int, most: int, text: str) -> None:
        page = self._shared()
        if page is not None:
            page[begin : begin + most] = text.encode()[:most].ljust(most, b"\0")

    def _shared(self) -> mmap.mmap | None:
        """Return the page, which the guard gives as soon as it is up; None where there is no
        guard.
        """
        if self._page is None and self._line is not None:
            try:
                said, fds, *_ = socket.recv_fds(self._line, 16, 1)
                self._page, self._place = mmap.mmap(fds[0], 0), int(said)
                os.close(fds[0])
            except (OSError, ValueError, IndexError):
                self._line.close()
                self._line = None
        return self._page


def introduce(rank: int) -> Watch:
    """Make this process known to the guard of its host, as this rank, and return at once; it need
    not be in MPI yet.

    Where the system lacks what a guard needs, the rank is not watched.
    """
    if not (hasattr(os, "pidfd_open") and hasattr(os, "memfd_create")):
        return Watch()
    line = socket.socket(socket.AF_UNIX)
    try:
        line.settimeout(_TIMEOUT_S)
        launcher = _launcher()
        server = _meet(line, f"\0emuchain-{os.geteuid()}-{launcher}")
        # Names this process alone, also after the system has given its number to another one.
        own = os.pidfd_open(os.getpid())
        socket.send_fds(
            line,
            [f"{rank} {os.getpid()}".encode()],
            [own, *(fd for descriptor in _launcher_fd() for fd in (descriptor, 2))],
        )
        os.close(own)
        if server is not None:
            with server:
                _start_guard(server)
    except (OSError, ValueError):
        line.close()
        return Watch()
    return Watch(line, f"{socket.gethostname()} {launcher}", is_first=server is not None)


def _meet(line: socket.socket, place: str) -> socket.socket | None:
    """Connect a socket to the guard of this host; return the guard's own socket if this process is
    the first to come.

    Raises:
        OSError: neither is possible, or another user's process has the place.
    """
    until_s = time.monotonic() + _TIMEOUT_S
    while True:
        # All connect, also the first, which has bound the socket and starts the guard behind it:
        #
        #     first   bind, listen   connect   start the guard, which accepts all of them
        #     others  bind fails     connect
        server = _bound(place)
        try:
            line.connect(place)
        except (
            ConnectionRefusedError
        ):  # the first is about to listen, or the guard of an earlier run has just ended
            if server is not None or time.monotonic() > until_s:
                raise
            time.sleep(_NAP_S)
            continue
        if peer_of(line).user != os.geteuid():
            raise PermissionError(errno.EPERM, "another user's process is there")
        return server


def _bound(place: str) -> socket.socket | None:
    """Return a socket that listens at a place, or None if there is one already."""
    server = socket.socket(socket.AF_UNIX)
    try:
        server.bind(place)
        server.listen(MOST_RANKS)
    except OSError as error:
        server.close()
        if error.errno != errno.EADDRINUSE:
            raise
        return None
    return server


def _launcher() -> str:
    """Return what only the processes of this host have in common that a launcher has started for
    one run.
    """
    own = os.stat(
        "/proc/self/ns/pid"
    ).st_ino  # containers may share sockets' names, but not processes' numbers
    for fd in _launcher_fd():
        with socket.socket(fileno=os.dup(fd)) as line:
            if line.family == socket.AF_UNIX:
                return f"{own}-{peer_of(line).pid}"
    return f"{own}-{os.environ.get('PMIX_NAMESPACE', os.getppid())}"[:_MOST_NAME]


def _launcher_fd() -> list[int]:
    """Return this process's connection to MPICH's launcher, if it has one."""
    fd = os.environ.get("PMI_FD", "")
    return [int(fd)] if fd.isdigit() else []


def _expected() -> Expected:
    """Return how many ranks the launcher has started."""
    return Expected(*map(_first_set, _SIZES))


def _first_set(names: Sequence[str]) -> int:
    return next((int(os.environ[name]) for name in names if name in os.environ), 0)


def _start_guard(server: socket.socket) -> None:
    stderr_fd = launchers_stderr()
    # It neither takes part in MPI nor is it in the ranks' process group, which launchers kill.
    _STARTED.append(
        # -I and -S: without the user's settings and site-packages it is up sooner, and it needs
        # neither.
        subprocess.Popen(
            [
                sys.executable,
                "-I",
                "-S",
                guard.__file__,
                *map(str, (server.fileno(), stderr_fd, *_expected())),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=[server.fileno(), stderr_fd],
        )
    )
    if stderr_fd != 2:
        os.close(stderr_fd)


_STARTED: list[subprocess.Popen[bytes]] = []
"""The guard, if this rank has started it: Python warns of processes that it forgets."""


class Meeting(NamedTuple):
    """Where rank 0 listens, under each name that its host may have, and the word by which ranks are
    known there.
    """

    hosts: list[str]
    port: int
    word: bytes


def connect_guards(comm: Any, guards: Sequence[str], watch: Watch) -> None:
    """Connect all guards with that of rank 0, for all ranks together; `guards` are those of the
    ranks, "" for none.
    """
    rank = comm.Get_rank()
    if rank == 0:
        with socket.create_server(("", 0), backlog=len(guards)) as server:
            server.settimeout(_NAP_S)
            port, word = server.getsockname()[1], os.urandom(16)
            comm.bcast(Meeting([socket.gethostname(), *addresses()], port, word))
            all_tried = (
                comm.Ibarrier()
            )  # is passed once every other rank has tried, whatever came of it
            while not all_tried.Test():
                with contextlib.suppress(OSError), accepted(server, word) as line:
                    watch.connect(line)
        return
    meeting = comm.bcast(None)
    if guards[rank] and guards.index(guards[rank]) == rank:  # of the ranks of a guard the first
        with contextlib.suppress(OSError), _connected(meeting) as line:
            watch.connect(line)
    all_tried = comm.Ibarrier()
    while not all_tried.Test():
        time.sleep(_NAP_S)  # a blocking barrier would spin, and ranks may outnumber cores


def addresses() -> Iterator[str]:
    """Yield the IPv4 addresses of this host by which others may reach it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as of_any:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                interface = fcntl.ioctl(of_any, _GET_ADDRESS, struct.pack("256s", name.encode()))
                yield socket.inet_ntoa(interface[20:24])


def accepted(server: socket.socket, word: bytes) -> socket.socket:
    """Return the next connection.

    Raises:
        OSError: there is none yet, or none that knows the word.
    """
    line, _ = server.accept()
    line.settimeout(_TRY_S)
    try:
        if line.recv(len(word)) != word:
            raise ConnectionRefusedError
        line.sendall(word)
        line.setblocking(True)
    except OSError:
        line.close()
        raise
    return line


def _connected(meeting: Meeting) -> socket.socket:
    """Return a connection to rank 0.

    Raises:
        OSError: it cannot be reached.
    """
    for host in meeting.hosts:
        with contextlib.suppress(OSError):
            line = socket.create_connection((host, meeting.port), _TRY_S)
            with contextlib.suppress(OSError):
                line.sendall(meeting.word)
                if line.recv(len(meeting.word)) == meeting.word:
                    line.setblocking(True)
                    return line
            line.close()
    raise ConnectionRefusedError
