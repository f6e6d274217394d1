"""Limits of processor time and memory for what is attacked: what takes more has begun work that it
did not estimate.
"""

from __future__ import annotations

import contextlib
import resource
import signal
from collections.abc import Iterator

CALL_CPU_S, PROCESS_CPU_S = 20, 300
MOST_BYTES = 4 << 30


def limit_process() -> None:
    """Limit this process, which ends beyond: for one that is about to become another program."""
    resource.setrlimit(resource.RLIMIT_CPU, (PROCESS_CPU_S, PROCESS_CPU_S))
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Limit the body.

    Raises:
        TimeoutError: in it, once it has taken the time.
        MemoryError: in it, where it takes too much.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    before = signal.signal(signal.SIGPROF, _too_long)
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, hard))
    signal.setitimer(signal.ITIMER_PROF, CALL_CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
        signal.signal(signal.SIGPROF, before)


def _too_long(*_: object) -> None:
    raise TimeoutError(f"takes more than {CALL_CPU_S} s of processor time")
