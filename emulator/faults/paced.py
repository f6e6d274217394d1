"""A FIFO resource whose rows take longer while a fault is on.

Rows start in ascending order. So up to the next time at which a span begins or ends, the time of every row is known by
its sample, and they are served at once; from the first row that starts later, anew.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...comm import FifoResource, Served, Times
from .begun import Begun
from .delay import Delay, check_time, ends_of, slowed_ps

_START = Begun()


class PacedResource(FifoResource):
    """A resource with delays, which serves each sample once, in order.

    Rows arrive in order: one that is not delayed waits for a delayed one before it. `begun` is what the chain has
    behind it.
    """

    def __init__(self, of: FifoResource, delays: Sequence[Delay], begun: Begun = _START) -> None:
        super().__init__(of.name, of.row_ps, of.latency_ps, of.header_ps)
        self._delays, self._begins = tuple(delays), begun
        self._ends = [end_ps - begun.time_ps for end_ps in ends_of(delays)]
        self._arrived_ps = 0
        self._begun: Times = np.zeros(0, np.int64)

    def serve(self, ready: Times) -> Times:
        """Return when each row of `ready` (samples, rows) arrives, in ps."""
        if ready.size == 0:
            return ready
        samples, rows = ready.shape
        number = self._begins.samples + self.served_rows // rows
        numbers = range(number, number + samples)
        waiting = np.ascontiguousarray(ready).reshape(-1)
        left, takes, late = (np.empty(ready.size, np.int64) for _ in range(3))
        first, free_ps = 0, self.free_ps
        while first < ready.size:
            start_ps = max(int(waiting[first]), free_ps)
            takes[first:], late[first:] = (each[first:] for each in self._times(start_ps, numbers, rows))
            left[first:] = _left(waiting[first:], takes[first:], free_ps)
            following = bisect.bisect_right(self._ends, start_ps)
            begun = ready.size
            if following < len(self._ends):
                starts = left[first:] - takes[first:]
                begun = first + int(np.searchsorted(starts, self._ends[following]))
            first, free_ps = begun, int(left[begun - 1])
        self._count(ready, left, takes)
        arrives = np.maximum.accumulate(left + late + self.latency_ps)
        arrives = np.maximum(arrives, self._arrived_ps)
        self._arrived_ps = int(arrives[-1])
        return arrives.reshape(ready.shape)

    def first_starts(self, left: Times) -> Times:
        """Return when each sample that was served last started, in ps."""
        return self._begun

    def _times(self, start_ps: int, numbers: range, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return how long each row takes, and how much later it arrives, while spans of time are as at `start_ps`."""
        on = [delay for delay in self._delays if delay.span.has_time(self._begins.time_ps + start_ps)]
        takes, late = np.empty((len(numbers), rows), np.int64), np.zeros((len(numbers), rows), np.int64)
        for place, number in enumerate(numbers):
            here = [delay for delay in on if delay.span.has_sample(number)]
            row_ps = slowed_ps(here, self.row_ps)
            takes[place] = row_ps
            for delay in here:
                late[place] += delay.latency_ps
                if delay.loss is not None:
                    takes[place] += delay.loss.added_ps(row_ps, delay.loss.lost(number, rows))
        return takes.reshape(-1), late.reshape(-1)

    def _count(self, ready: Times, left: NDArray[np.int64], takes: NDArray[np.int64]) -> None:
        self.free_ps = int(left[-1])
        self.served_rows += ready.size
        self.spared_rows += ready.size * (1 - self._share)
        self.busy_ps += int(takes.sum())
        of_samples, left = takes.reshape(ready.shape), left.reshape(ready.shape)
        self._begun = left[:, 0] - of_samples[:, 0]
        if self.observer is not None:
            # A sample at a time. Where its rows differ, the shortest, so that those shown never overlap.
            for place, least in enumerate(of_samples.min(axis=1).tolist()):
                one = slice(place, place + 1)
                self.observer(Served(self.name, ready[one], left[one], least, self._share))

    def state(self) -> dict[str, Any]:
        """Return the training state."""
        return {**super().state(), "arrived_ps": self._arrived_ps}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        super().restore(state)
        self._arrived_ps = state["arrived_ps"]


def _left(waiting: NDArray[np.int64], takes: NDArray[np.int64], free_ps: int) -> NDArray[np.int64]:
    """Return when rows leave that each take a time of their own: `serve`, with one for each row."""
    check_time(float(max(free_ps, waiting[-1])) + float(takes.sum(dtype=np.float64)))
    ends = np.cumsum(takes)
    begins: NDArray[np.int64] = np.maximum(np.maximum.accumulate(waiting - (ends - takes)), free_ps)
    return ends + begins
