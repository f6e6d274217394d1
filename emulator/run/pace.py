"""How often a file is written whose history has become long: writing takes a small share of a run, however long."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

LONG_BYTES = 1 << 20
"""Of a history: one that is shorter takes some milliseconds, and is written each time."""
_APART = 19
"""Times as long as writing takes, from the end of one to the begin of the next."""


class Pace:
    """When a file is due that holds a history; `clock` is in s."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._next_s = clock, 0.0

    def due(self, history_bytes: int) -> bool:
        """Return whether to write it now: always while the history is short, then for a twentieth of the time."""
        return history_bytes < LONG_BYTES or self._clock() >= self._next_s

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Take the time that writing takes."""
        begin_s = self._clock()
        yield
        end_s = self._clock()
        self._next_s = end_s + _APART * (end_s - begin_s)
