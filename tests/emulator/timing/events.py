"""A heap of events, marks that happen once, and processes that wait for marks or for time to
pass.
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

Mark = tuple[Any, ...]
Process = Iterator[list[Mark] | int]
"""A generator: after `yield [mark, ...]` it goes on once all of these have happened, after `yield
ps` so much later.
"""


class Clock:
    """The heap of events; those of the same time may come in any order."""

    def __init__(self) -> None:
        self.now_ps, self.heap, self.count = (
            0,
            list[tuple[int, int, Callable[[], None]]](),
            itertools.count(),
        )

    def after(self, delay_ps: int, call: Callable[[], None]) -> None:
        heapq.heappush(self.heap, (self.now_ps + delay_ps, next(self.count), call))

    def run(self) -> None:
        while self.heap:
            self.now_ps, _, call = heapq.heappop(self.heap)
            call()


class Marks:
    """When marks happened, and which processes wait for others."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.at_ps = clock, dict[Mark, int]()
        self.waiting: dict[Mark, list[Callable[[], None]]] = defaultdict(list)

    def happen(self, mark: Mark, delay_ps: int = 0) -> None:
        if delay_ps:
            self.clock.after(delay_ps, partial(self.happen, mark))
            return
        self.at_ps[mark] = self.clock.now_ps
        for call in self.waiting.pop(mark, ()):
            call()

    def start(self, process: Process, marks: list[Mark] | None = None) -> None:
        """Go on with a process once all marks have happened."""
        for mark in marks or ():
            if mark not in self.at_ps:
                self.waiting[mark].append(partial(self.start, process, marks))
                return
        wish = next(process, None)
        if isinstance(wish, int):
            self.clock.after(wish, partial(self.start, process))
        elif wish is not None:
            self.start(process, wish)
