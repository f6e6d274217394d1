"""What a device or a rank waits for from other ranks, for the case that it waits for ever."""

from __future__ import annotations

import contextlib
from typing import NamedTuple


class Awaited(NamedTuple):
    """A message that a device waits for, in words, and the rank from which it comes; None: from every rank."""

    text: str
    rank: int | None


ALL_RANKS = Awaited("all ranks to get as far", None)


def is_stopped(pid: int) -> bool:
    """Return whether a process is stopped, as by SIGSTOP or a debugger."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()[0] in "Tt"
    return False
