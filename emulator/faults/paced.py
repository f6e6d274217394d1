"""A FIFO resource whose rows take longer while a fault is on: what faults do to rows, and how these
are served.

Rows start in ascending order. So up to the next time at which a span begins or ends, the time of
every row is known by its sample, and they are served at once; from the first row that starts later,
anew:

    span             off         | on, rows take twice as long       | off
    rows      [ a ][ b ][ c ][ d ][   e    ][   f    ][   g    ][   h    ][ i ][ j ]
    at once   a to d              e to h                                  i, j
"""

from __future__ import annotations

import bisect
import dataclasses
import fractions
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...comm import FifoResource, Served, Times
from ..common import InputError
from .fault import Span
from .flips import Purpose, stream


@dataclasses.dataclass(frozen=True)
class Begun:
    """What a chain has behind it where its clocks begin at 0: samples, mini-batches, and virtual
    time in ps.

    Faults are counted from the start of training, clocks from here.
    """

    samples: int = 0
    steps: int = 0
    time_ps: int = 0


# Half of what an int64 holds, so that a sum of two such times fits.
_MOST_PS = 1 << 62


@dataclasses.dataclass(frozen=True)
class Loss:
    """Packets of rows that are lost with the probability `rate`: each takes its time again, after
    `timeout_ps`.

    `place` is (seed, fault, sending board, data path), on which draws depend.
    """

    rate: float
    row_packets: int
    timeout_ps: int
    place: tuple[int, int, int, int]

    def lost(self, sample: int, rows: int) -> NDArray[np.int64]:
        """Return for each row of a sample how many packets are lost, those sent again among
        them.
        """
        seed, fault, board, part = self.place
        drawn = stream(seed, Purpose.LOSS, fault, board, part, sample)
        # Failures before as many successes as a row has packets.
        return drawn.negative_binomial(self.row_packets, 1 - self.rate, rows)

    def added_ps(self, row_ps: int, lost: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return what a row of `row_ps` takes longer for its lost packets, in ps.

        Raises:
            InputError: longer than a clock can hold.
        """
        # In floats, which do not wrap around where integers would.
        check_time(float(row_ps + self.timeout_ps) * float(lost.max(initial=0)))
        return -(-row_ps * lost // self.row_packets) + lost * self.timeout_ps


@dataclasses.dataclass(frozen=True)
class Delay:
    """One fault of a resource: inside its span, rows take `factor` times as long and arrive
    `latency_ps` later.
    """

    span: Span
    factor: fractions.Fraction
    latency_ps: int = 0
    loss: Loss | None = None


def slowed_ps(delays: Sequence[Delay], takes_ps: int) -> int:
    """Return a time in ps, as slowed down by all of these.

    Raises:
        InputError: it is longer than a clock can hold.
    """
    slow_ps = math.ceil(math.prod((delay.factor for delay in delays), start=takes_ps))
    check_time(slow_ps)
    return slow_ps


def check_time(time_ps: float) -> None:
    """Check that a clock can hold a time.

    Raises:
        InputError: it cannot.
    """
    if time_ps > _MOST_PS:
        raise InputError(
            "`faults`: virtual time runs past 53 days; should be smaller factors, latencies or"
            " losses"
        )


def ends_of(delays: Sequence[Delay]) -> list[int]:
    """Return the times in ps at which a span of time begins or ends, in ascending order."""
    bounds = {bound for delay in delays for bound in delay.span.bounds_ps if bound}
    return sorted(bounds)


_START = Begun()


class PacedResource(FifoResource):
    """A resource with delays, which serves each sample once, in order.

    Rows arrive in order: one that is not delayed waits for a delayed one before it. `begun` is what
    the chain has behind it.
    """

    def __init__(
        self, resource: FifoResource, delays: Sequence[Delay], begun: Begun = _START
    ) -> None:
        super().__init__(resource.name, resource.row_ps, resource.latency_ps, resource.header_ps)
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
            takes[first:], late[first:] = (
                time[first:] for time in self._times(start_ps, numbers, rows)
            )
            left[first:] = _left(waiting[first:], takes[first:], free_ps)
            # A span that begins or ends at this time has done so; the next change is later.
            following = bisect.bisect_right(self._ends, start_ps)
            begun = ready.size
            if following < len(self._ends):
                starts = left[first:] - takes[first:]
                # To the left of equal ones: a row that starts at the change is served as after it.
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

    def _times(
        self, start_ps: int, numbers: range, rows: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return how long each row takes, and how much later it arrives, while spans of time are as
        at `start_ps`.
        """
        on = [
            delay for delay in self._delays if delay.span.has_time(self._begins.time_ps + start_ps)
        ]
        takes, late = (
            np.empty((len(numbers), rows), np.int64),
            np.zeros((len(numbers), rows), np.int64),
        )
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
            # A sample at a time. Where its rows differ, the shortest, so that those shown never
            # overlap.
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
    # Row i leaves at the maximum over j <= i of: row j waits, and rows j to i take their time. With
    # all times from row 0 on taken off, this is a running maximum.
    ends = np.cumsum(takes)
    begins: NDArray[np.int64] = np.maximum(np.maximum.accumulate(waiting - (ends - takes)), free_ps)
    return ends + begins
