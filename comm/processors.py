"""The processors of a host, and a rank's share of them where there are more ranks.

The system gives each process as much as the others, so the rank with the most work waits while ranks with little work
run. Niceness is how a process takes less: each step makes its weight 1.25 times smaller.
"""

from __future__ import annotations

import contextlib
import math
import os
import pathlib

_STEP = 1.25
"""Linux, kernel/sched/core.c: `sched_prio_to_weight`."""
_NICEST = 19
_AUTOGROUP = pathlib.Path("/proc/self/autogroup")


def usable_cores() -> int:
    """Return the number of cores that this process may run on."""
    return len(os.sched_getaffinity(0))


def niceness(work: int, most: int) -> int:
    """Return by how much nicer a rank with `work` is than one with `most`, so that their weights are as their work."""
    return min(_NICEST, round(math.log(most / work, _STEP))) if work else _NICEST


def be_nicer(by: int, base: int) -> None:
    """Set the niceness of this process `by` steps above `base`, if the system allows it.

    Linux compares niceness within a session alone, and then that of the sessions. Where this process leads a session of
    its own, as launchers start ranks, both are set.
    """
    with contextlib.suppress(OSError):  # only root may become less nice
        os.setpriority(os.PRIO_PROCESS, 0, min(_NICEST, base + by))
        if os.getsid(0) == os.getpid() and _AUTOGROUP.exists():
            _AUTOGROUP.write_text(str(by), encoding="ascii")
