"""Processes of this host: a rank's share of the processors, descendants, the launcher's standard
error.

Where ranks outnumber processors, the system gives each process as much as the others, so the rank
with the most work waits while ranks with little work run. Niceness is how a process takes less:
each step makes its weight 1.25 times smaller. Open MPI's launcher passes on nothing that ranks say
once one of them has died or it was asked to end, so such lines go to its own standard error.
"""

from __future__ import annotations

import contextlib
import math
import os
import pathlib
import signal
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from psutil import Process

_STEP = 1.25
"""Linux, kernel/sched/core.c: `sched_prio_to_weight`."""
_NICEST = 10
"""Of a rank with little work or none: it takes part in messages, and programs beside it must leave
it time for them.
"""
_AUTOGROUP = pathlib.Path("/proc/self/autogroup")


def usable_cores() -> int:
    """Return the number of cores that this process may run on."""
    return len(os.sched_getaffinity(0))


def niceness(work: int, most: int) -> int:
    """Return by how much nicer a rank with `work` is than one with `most`, so that their weights
    are as their work.
    """
    return min(_NICEST, round(math.log(most / work, _STEP))) if work else _NICEST


def be_nicer(by: int, base: int) -> None:
    """Set the niceness of this process `by` steps above `base`, if the system allows it.

    Linux compares niceness within a session alone, and then that of the sessions. Where this
    process leads a session of its own, as launchers start ranks, both are set.
    """
    with contextlib.suppress(OSError):  # only root may become less nice
        os.setpriority(os.PRIO_PROCESS, 0, base + by)  # the system takes 19 for more
        if os.getsid(0) == os.getpid() and _AUTOGROUP.exists():
            _AUTOGROUP.write_text(str(by), encoding="ascii")


def is_stopped(pid: int) -> bool:
    """Return whether a process is stopped, as by SIGSTOP or a debugger."""
    with (
        contextlib.suppress(OSError),
        open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file,
    ):
        # The state follows the name, which may hold parentheses itself.
        return file.read().rpartition(")")[2].split()[0] in "Tt"
    return False


def family(pid: int) -> list[Process]:
    """Return a process and its descendants, parents before children, without those that have
    ended.
    """
    import psutil  # here, since ranks do without it

    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    return []


def send(number: signal.Signals, processes: Iterable[Process]) -> None:
    """Send a signal to processes; skip those that have ended."""
    import psutil

    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)


_PIDFD_GETFD = 438
"""The number of the system call, on every architecture."""
_OPEN_MPI = ("prterun", "prte")


def launchers_stderr() -> int:
    """Return a descriptor for lines that must be seen: this process's own standard error, 2, but
    under Open MPI's.

    Under that one it is the launcher's, if that is on this host, as a new descriptor, which the
    caller closes.
    """
    parent = os.getppid()
    with contextlib.suppress(OSError):
        with open(f"/proc/{parent}/comm", encoding="utf-8") as file:
            if file.read().strip() not in _OPEN_MPI:
                return 2
        # O_NOCTTY: a rank that leads a session must not take a terminal for its own.
        return _shared(parent) or os.open(
            f"/proc/{parent}/fd/2", os.O_WRONLY | os.O_APPEND | os.O_NOCTTY
        )
    return 2


def tell(line: str) -> None:
    """Print a line there."""
    fd = launchers_stderr()
    with contextlib.suppress(OSError):
        os.write(fd, f"{line}\n".encode())
    if fd != 2:
        os.close(fd)


def _shared(pid: int) -> int | None:
    """Return a process's descriptor 2 with its place in the file, if this process may have it.

    A descriptor of its own has its own place, and in a file the launcher would write over what was
    written there.
    """
    import ctypes

    process = os.pidfd_open(pid)
    try:
        fd: int = ctypes.CDLL(None).syscall(_PIDFD_GETFD, process, 2, 0)
    finally:
        os.close(process)
    return fd if fd >= 0 else None
