"""Registration of a rank with the guard of its host (`guard.py`), so that its death is noticed."""

from __future__ import annotations

import atexit
import contextlib
import json
import mmap
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from . import guard
from .guard import LEAVING, NOTE_BYTES, PLACE_BYTES, Member
from .launchers_stderr import launchers_stderr

_TIMEOUT_S = 10.0
_LET_GO_S = 0.5


class Watch:
    """This rank's place in the page that it shares with the guard of its host; without a page it does nothing."""

    def __init__(self, page: mmap.mmap | None = None, place: int = 0, bell_fd: int = -1) -> None:
        self._page, self._place, self._bell_fd = page, place, bell_fd
        if page is not None:
            atexit.register(self.leave)

    def note(self, text: str) -> None:
        """Leave word of what the run has done last, for the case that a rank dies."""
        self._write(1, NOTE_BYTES, text)

    @property
    def ends(self) -> bool:
        """Whether the run ends, for a reason that has been told."""
        return self._page is not None and LEAVING in self._page[::PLACE_BYTES]

    @property
    def noted(self) -> str:
        """The last note of a rank of this host."""
        return "" if self._page is None else self._page[1 : 1 + NOTE_BYTES].rstrip(b"\0").decode("utf-8", "ignore")

    def name(self, text: str) -> None:
        """Set what this rank is called."""
        self._write((1 + self._place) * PLACE_BYTES + 1, PLACE_BYTES - 1, text)

    def leave(self) -> None:
        """Tell the guard that this rank is about to end, and that this is as it should be.

        The guard then lets go of the launcher, so that this learns of each rank's end at once.
        """
        if self._page is None or self._page[(1 + self._place) * PLACE_BYTES] == LEAVING:
            return
        self._page[(1 + self._place) * PLACE_BYTES] = LEAVING
        os.eventfd_write(self._bell_fd, 1)
        until_s = time.monotonic() + _LET_GO_S
        while self._page[0] != LEAVING and time.monotonic() < until_s:
            time.sleep(1e-3)

    def _write(self, begin: int, most: int, text: str) -> None:
        if self._page is not None:
            self._page[begin : begin + most] = text.encode()[:most].ljust(most, b"\0")


def watch(share: Callable[[Any], list[Any]], here: Sequence[int], rank: int) -> Watch:
    """Start the guard of this host from its first rank, and make this rank known to it; for all ranks together.

    `share` gathers a value of each rank on all of them; `here` are the ranks of this host.
    Where the system lacks what a guard needs, ranks are not watched.
    """
    place = list(here).index(rank)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(_listening(len(here))) if place == 0 else None
        path = share("" if server is None else server.getsockname())[here[0]]
        line = _introduced(path, place) if path and place > 0 else None
        if line is not None:
            stack.enter_context(line)
        came = share(line is not None)
        page, bell_fd = None, -1
        with contextlib.suppress(OSError):
            if server is not None:
                page, bell_fd = _start_guard(server, sum(came[each] for each in here), len(here))
            elif line is not None:
                page, bell_fd = _received(line)
    return Watch(page, place, bell_fd)


@contextlib.contextmanager
def _listening(count: int) -> Iterator[socket.socket | None]:
    """Provide a socket for the other ranks of this host; None if there can be none."""
    if not (hasattr(os, "pidfd_open") and hasattr(os, "eventfd")):
        yield None
        return
    try:
        folder = tempfile.mkdtemp(prefix="emuchain-")
    except OSError:
        yield None
        return
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.settimeout(_TIMEOUT_S)
            server.bind(f"{folder}/ranks")
            server.listen(count)
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _own_fds() -> list[int]:
    """Return this process, as a descriptor, and its connection to MPICH's launcher, if it has one."""
    launcher = os.environ.get("PMI_FD", "")
    return [os.pidfd_open(os.getpid()), *([int(launcher)] if launcher.isdigit() else [])]


def _introduced(path: str, place: int) -> socket.socket | None:
    """Return a connection to the first rank of this host, over which this rank has made itself known."""
    line = socket.socket(socket.AF_UNIX)
    try:
        line.settimeout(_TIMEOUT_S)
        line.connect(path)
        own, *launcher = _own_fds()
        socket.send_fds(line, [json.dumps([place, os.getpid()]).encode()], [own, *launcher])
        os.close(own)
    except OSError:
        line.close()
        return None
    return line


def _received(line: socket.socket) -> tuple[mmap.mmap | None, int]:
    """Return the page and the bell."""
    _, fds, *_ = socket.recv_fds(line, 1, 2)
    if len(fds) < 2:
        return None, -1
    page = mmap.mmap(fds[0], 0)
    os.close(fds[0])
    return page, fds[1]


def _start_guard(server: socket.socket, others: int, places: int) -> tuple[mmap.mmap, int]:
    """Start the guard for this rank and the others of this host; return the page and the bell, and give them these."""
    page_fd = os.memfd_create("emuchain")
    os.ftruncate(page_fd, (1 + places) * PLACE_BYTES)
    own, *launcher = _own_fds()
    bell_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    members = [Member(0, os.getpid(), own, launcher[0] if launcher else -1)]
    given = [page_fd, own]
    for _ in range(others):
        line, _ = server.accept()
        with line:
            line.settimeout(_TIMEOUT_S)
            said, fds, *_ = socket.recv_fds(line, 4096, 2)
            given += fds
            place, pid = json.loads(said)
            members.append(Member(place, pid, fds[0], fds[1] if len(fds) > 1 else -1))
            socket.send_fds(line, [b"p"], [page_fd, bell_fd])
    told = launchers_stderr()
    passed = [*given, *launcher, bell_fd, told]
    order = json.dumps({"page": page_fd, "members": members, "told": told, "bell": bell_fd})
    # It neither takes part in MPI nor is it in the ranks' process group, which launchers kill.
    _STARTED.append(
        subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__, order],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=passed,
        )
    )
    page = mmap.mmap(page_fd, 0)
    for fd in given if told == 2 else [*given, told]:
        os.close(fd)
    return page, bell_fd


_STARTED: list[subprocess.Popen[bytes]] = []
"""The guard, if this rank has started it: Python warns of processes that it forgets."""
