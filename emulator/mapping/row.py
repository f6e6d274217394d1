"""The row of all layers' channels, of which every device gets a piece, and how long a piece a board can take.

A board does a piece in a given time if the fewest tiles for that time fit it (engines.py). A piece of a piece needs no
more of them, so for one end of a piece the furthest other end is found by bisection. No piece spans the *wall*, which
stands between the convolutions and fully connected layers that are off chip, or at the end where there are none.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Sequence

from .engines import Demand


class Row:
    """All layers' channels side by side; a boundary is named by the channel after it."""

    def __init__(self, counts: Sequence[int], demands: Sequence[Sequence[Demand]], wall: int) -> None:
        """For each layer its channels and what one demands; the wall stands before that layer, or after all."""
        self.first = list(itertools.accumulate(counts, initial=0))
        self.demands = demands
        self.wall = self.first[wall]
        self._work = [sum(demand.work for demand in layer) for layer in demands]
        self._before = list(itertools.accumulate(map(int.__mul__, counts, self._work), initial=0))

    @property
    def end(self) -> int:
        """The row's last boundary."""
        return self.first[-1]

    def layer(self, channel: int) -> int:
        """The layer of a channel."""
        return bisect.bisect_right(self.first, channel) - 1

    def work(self, boundary: int) -> int:
        """Multiplier-cycles of all channels before a boundary."""
        if boundary == self.end:
            return self._before[-1]
        layer = self.layer(boundary)
        return self._before[layer] + (boundary - self.first[layer]) * self._work[layer]

    def nearest(self, work: float) -> int:
        """The boundary before which the work is nearest to this."""
        layer = min(bisect.bisect_right(self._before, work), len(self._work)) - 1
        channels = round((work - self._before[layer]) / self._work[layer])
        return min(self.first[layer] + channels, self.first[layer + 1])

    def filled(self, begin: int, work: float) -> int:
        """The first boundary with so much work since `begin`, or the wall; `begin` itself beyond that."""
        if begin >= self.wall:
            return begin
        target = self.work(begin) + work
        layer = bisect.bisect_left(self._before, target, hi=self.layer(self.wall - 1) + 1) - 1
        if layer < 0:
            return begin
        return min(self.first[layer] + math.ceil((target - self._before[layer]) / self._work[layer]), self.wall)

    def emptied(self, end: int, work: float) -> int:
        """The last boundary with so much work up to `end`; the one before `end` beyond the wall."""
        if end > self.wall:
            return end - 1
        target = self.work(end) - work
        layer = bisect.bisect_right(self._before, target, hi=len(self._work)) - 1
        return self.first[layer] + int((target - self._before[layer]) / self._work[layer]) if layer >= 0 else -1

    def furthest(self, begin: int, dsp: int, cycles: int) -> int:
        """Where a device that begins here has to end, to do a sample in so many cycles."""
        limit = self.wall if begin < self.wall else self.end
        at, left = begin, dsp
        for layer in range(self.layer(begin), len(self.demands)):
            stop = min(self.first[layer + 1], limit)
            channels, used = most_channels(self.demands[layer], stop - at, left, cycles)
            at, left = at + channels, left - used
            if at < stop or at == limit:
                break
        return at

    def earliest(self, end: int, dsp: int, cycles: int) -> int:
        """Where a device that ends here can begin at the earliest."""
        limit = self.wall if end > self.wall else 0
        at, left = end, dsp
        for layer in range(self.layer(end - 1), -1, -1):
            stop = max(self.first[layer], limit)
            channels, used = most_channels(self.demands[layer], at - stop, left, cycles)
            at, left = at - channels, left - used
            if at > stop or at == limit:
                break
        return at


def most_channels(demands: Sequence[Demand], available: int, dsp: int, cycles: int) -> tuple[int, int]:
    """As many channels as a board with `dsp` multipliers can do in time, if one demands this, and what they take."""
    if any(demand.rows > cycles for demand in demands):
        return 0, 0
    limits = [(demand.convolutions, cycles // demand.rows, demand.tile) for demand in demands]

    def used(channels: int) -> int:
        return sum(-(-channels * convolutions // limit) * tile for convolutions, limit, tile in limits)

    if used(available) <= dsp:
        return available, used(available)
    # Rounding adds less than a tile to each engine.
    each = sum(convolutions / limit * tile for convolutions, limit, tile in limits)
    low = max(0, int((dsp - sum(demand.tile for demand in demands)) / each) - 1)
    high = min(available, int(dsp / each) + 2)
    while high - low > 1:
        middle = (low + high) // 2
        if used(middle) <= dsp:
            low = middle
        else:
            high = middle
    return low, used(low)
