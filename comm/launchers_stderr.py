"""The standard error of the launcher itself.

Open MPI's launcher passes on nothing that ranks say once one of them has died or it has been told to end.
"""

from __future__ import annotations

import contextlib
import os

_PIDFD_GETFD = 438
"""The number of the system call, on every architecture."""
_OPEN_MPI = ("prterun", "prte")


def launchers_stderr() -> int:
    """Return a descriptor for lines that must be seen: this process's own standard error, 2, but under Open MPI's.

    Under that one it is the launcher's, if that is on this host, as a new descriptor, which the caller closes.
    """
    parent = os.getppid()
    with contextlib.suppress(OSError):
        with open(f"/proc/{parent}/comm", encoding="utf-8") as file:
            if file.read().strip() not in _OPEN_MPI:
                return 2
        return _shared(parent) or os.open(f"/proc/{parent}/fd/2", os.O_WRONLY | os.O_APPEND | os.O_NOCTTY)
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

    A descriptor of its own has its own place, and in a file the launcher would write over what was written there.
    """
    import ctypes

    process = os.pidfd_open(pid)
    try:
        fd: int = ctypes.CDLL(None).syscall(_PIDFD_GETFD, process, 2, 0)
    finally:
        os.close(process)
    return fd if fd >= 0 else None
