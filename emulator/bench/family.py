"""A process and its descendants: stop, continue and end them, and measure their memory. Linux only."""

from __future__ import annotations

import os
import pathlib
import re
import signal

from ..common import parse_status

_PSS = re.compile(r"^Pss:\s+(\d+) kB$", re.MULTILINE)


def family(pid: int) -> list[int]:
    """Return the ids of a process and its descendants, parents before children, without those that have ended."""
    children: dict[int, list[int]] = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                _, parent = parse_status((entry / "status").read_text(encoding="utf-8", errors="replace"))
            except (OSError, ValueError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for member in found:
        found += children.get(member, [])
    return found


def tell(pids: list[int], number: signal.Signals) -> None:
    """Send the signal `number` to all of them; skip those that have ended."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def memory_bytes(pids: list[int]) -> int:
    """Return the sum of their proportional set sizes: shared memory counts once in total (PSS, proc_pid_smaps(5))."""
    return sum(_pss(pid) for pid in pids)


def _pss(pid: int) -> int:
    try:
        text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8")
    except OSError:  # the process has ended
        return 0
    match = _PSS.search(text)
    return 1024 * int(match[1]) if match else 0
