"""What a device or a rank waits for from other ranks, so that a run without progress can report it."""

from __future__ import annotations

import contextlib
from typing import NamedTuple


class Awaited(NamedTuple):
    """A description of a message that a device waits for, and the rank that sends it; None: every rank."""

    text: str
    rank: int | None


ALL_RANKS = Awaited("all ranks to get as far", None)


def is_stopped(pid: int) -> bool:
    """Return whether a process is stopped, as by SIGSTOP or a debugger."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()[0] in "Tt"
    return False
