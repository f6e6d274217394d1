"""A process beside the ranks of a host: it says which rank has died, ends the others, and removes what MPI left.

It is a script of its own, which imports nothing of emuchain, because it starts with every run of several ranks and must
outlive them. MPICH's launcher learns of a death from the end of the rank's connection to it (`PMI_FD`), and then kills
all other ranks at once: the guard holds a copy of each connection until it has seen which rank died first.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import re
import select
import signal
import sys
import time
from typing import NamedTuple

NOTE_BYTES, PLACE_BYTES = 255, 256
"""The page begins with a byte, which is LEAVING once the guard lets go of the launcher, and a note of what was done
last; then come the places of the ranks, filled with 0 at first.

In a place are a byte, which is LEAVING once the rank ends as it should, and the rank's name. Texts are in UTF-8.
"""
LEAVING = 1

_SETTLE_S = 0.05  # launchers that kill all ranks do so within milliseconds
_GRACE_S = 5.0
_LEFT_BEHIND = re.compile(r" (/dev/shm/(?:mpich_shm_|sm_segment\.|vader_segment\.)\S+)$")


class Member(NamedTuple):
    """A rank of this host: its place in the page, its process, and a copy of its connection to the launcher, or -1."""

    place: int
    pid: int
    pid_fd: int
    launcher_fd: int


class Shared(NamedTuple):
    """A file in shared memory."""

    path: str
    device: int
    inode: int


class Page:
    """What the ranks of this host tell the guard."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory

    @property
    def ends(self) -> bool:
        """Whether a rank ends as it should, so that the others will end, too."""
        return LEAVING in self._memory[PLACE_BYTES::PLACE_BYTES]

    @property
    def note(self) -> str:
        """What was done last."""
        return _text(self._memory[1 : 1 + NOTE_BYTES])

    def name(self, place: int) -> str:
        """Return the name of a rank."""
        begin = (1 + place) * PLACE_BYTES
        return _text(self._memory[begin + 1 : begin + PLACE_BYTES])

    def let_go(self) -> None:
        """Say that the guard lets go of the launcher, which then ends the run."""
        self._memory[0] = LEAVING


def _text(padded: bytes) -> str:
    return padded.rstrip(b"\0").decode("utf-8", "ignore")


def main(page_fd: int, members: list[Member], told_fd: int, bell_fd: int) -> None:
    """Watch until all ranks of this host have ended; `told_fd` is where to say what happened.

    Ranks ring the bell when they end as they should.
    """
    page = Page(mmap.mmap(page_fd, 0))
    files = {shared for member in members for shared in shared_by(member.pid)}
    left = dict(enumerate(members))
    held = [member.launcher_fd for member in members if member.launcher_fd >= 0]
    while left:
        dead = _ended(left, None, bell_fd)
        if page.ends:
            held = _let_go(held)
            page.let_go()
            bell_fd = -1
        if not dead:
            continue
        first = left[dead[0]]
        how = _how(first.pid)  # at once: the launcher may wait for it
        if not page.ends:
            time.sleep(_SETTLE_S)
            together = len(dead) == len(members) > 1
            if not page.ends:
                whom = "all ranks of this host were killed at once" if together else f"{page.name(first.place)} {how}"
                done = f"; last step done: {page.note}" if page.note else ""
                page.let_go()
                _tell(told_fd, f"emuchain: error: {whom}{done}")
            held = _let_go(held)
            _end_all(left)
            break
        for number in dead:
            del left[number]
    for file in files:
        _remove(file)


def shared_by(pid: int) -> set[Shared]:
    """Return MPI's files in shared memory that a process maps."""
    found = set()
    with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            if name := _LEFT_BEHIND.search(line):
                with contextlib.suppress(OSError):
                    stat = os.stat(name[1], follow_symlinks=False)
                    found.add(Shared(name[1], stat.st_dev, stat.st_ino))
    return found


def _ended(left: dict[int, Member], timeout_s: float | None, bell_fd: int = -1) -> list[int]:
    """Return which of these ranks have ended, waiting for the first, or the bell; or for as long as a timeout says."""
    poller = select.poll()
    by_fd = {member.pid_fd: number for number, member in left.items()}
    for fd in (*by_fd, *([bell_fd] if bell_fd >= 0 else [])):
        poller.register(fd, select.POLLIN)
    events = poller.poll(None if timeout_s is None else 1000 * timeout_s)
    return [by_fd[fd] for fd, _ in events if fd in by_fd]


def _how(pid: int) -> str:
    """Return how a process that has not been waited for has ended, as far as the system tells."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            status = int(file.read().rpartition(")")[2].split()[49])
        number = status & 0x7F
        return f"was killed by {signal.Signals(number).name}" if number else f"ended with status {status >> 8}"
    except (OSError, ValueError, IndexError):
        return "died"


def _tell(fd: int, line: str) -> None:
    with contextlib.suppress(OSError):
        os.write(fd, f"{line}\n".encode())


def _end_all(left: dict[int, Member]) -> None:
    """Let the launcher end the ranks; kill those that it has not ended in some seconds."""
    until_s = time.monotonic() + _GRACE_S
    while left:
        for number in _ended(left, max(0.0, until_s - time.monotonic())):
            del left[number]
        if left and time.monotonic() >= until_s:
            for member in left.values():
                with contextlib.suppress(OSError):
                    signal.pidfd_send_signal(member.pid_fd, signal.SIGKILL)
            until_s = time.monotonic() + _GRACE_S


def _let_go(fds: list[int]) -> list[int]:
    for fd in fds:
        os.close(fd)
    return []


def _remove(file: Shared) -> None:
    """Remove a file of this user's that the ranks have left in shared memory, if no process uses it any more."""
    with contextlib.suppress(OSError):
        stat = os.stat(file.path, follow_symlinks=False)
        if (stat.st_dev, stat.st_ino, stat.st_uid) != (file.device, file.inode, os.geteuid()):
            return
        used = (file in shared_by(int(name)) for name in os.listdir("/proc") if name.isdigit())
        if not any(used):
            os.unlink(file.path)


if __name__ == "__main__":
    order = json.loads(sys.argv[1])
    main(order["page"], [Member(*member) for member in order["members"]], order["told"], order["bell"])
