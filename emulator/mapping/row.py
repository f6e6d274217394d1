"""The row of all layers' channels, of which every device gets a piece, and the longest piece that a board can take.

A board can do a piece in a given time if it has the multipliers that this needs (`Board.most_channels`), and if its
memory port moves in that time what does not fit on chip (`memory`). A part of a piece needs no more of either, so for
one end of a piece the furthest other end is found by bisection. No piece spans the *wall*, which is between the
convolutions and the off-chip layers, or at the end if there are none.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Sequence
from typing import Protocol

from ..cluster import Board, Work


class PieceMemory(Protocol):
    """The time that memory takes for a piece of the row."""

    def is_within(self, begin: int, end: int, board: Board, time_ps: int) -> bool:
        """Return whether a board's memory port moves in `time_ps` what does not fit on chip of a piece."""


class Row:
    """All layers' channels in one row; a boundary has the number of the channel after it."""

    def __init__(
        self,
        counts: Sequence[int],
        works: Sequence[Sequence[Work]],
        wall: int,
        memory: PieceMemory | None = None,
    ) -> None:
        """Take each layer's number of channels and works of one; the wall is before layer `wall`, or after all."""
        self.memory = memory
        self.first = list(itertools.accumulate(counts, initial=0))
        self.works = works
        self.wall = self.first[wall]
        self._macs = [sum(work.macs for work in layer) for layer in works]
        self._before = list(itertools.accumulate(map(int.__mul__, counts, self._macs), initial=0))

    @property
    def end(self) -> int:
        """The row's last boundary."""
        return self.first[-1]

    def layer(self, channel: int) -> int:
        """Return the layer of a channel."""
        return bisect.bisect_right(self.first, channel) - 1

    def work(self, boundary: int) -> int:
        """Return the multiply-accumulates of all channels before a boundary."""
        if boundary == self.end:
            return self._before[-1]
        layer = self.layer(boundary)
        return self._before[layer] + (boundary - self.first[layer]) * self._macs[layer]

    def nearest(self, work: float) -> int:
        """Return the boundary before which the work is nearest to `work`."""
        layer = min(bisect.bisect_right(self._before, work), len(self._macs)) - 1
        channels = round((work - self._before[layer]) / self._macs[layer])
        return min(self.first[layer] + channels, self.first[layer + 1])

    def filled(self, begin: int, work: float) -> int:
        """Return the first boundary with at least `work` since `begin`, up to the wall; beyond the wall, `begin`."""
        if begin >= self.wall:
            return begin
        target = self.work(begin) + work
        layer = bisect.bisect_left(self._before, target, hi=self.layer(self.wall - 1) + 1) - 1
        if layer < 0:
            return begin
        return min(self.first[layer] + math.ceil((target - self._before[layer]) / self._macs[layer]), self.wall)

    def emptied(self, end: int, work: float) -> int:
        """Return the last boundary with at least `work` from it to `end`; beyond the wall, the one before `end`."""
        if end > self.wall:
            return end - 1
        target = self.work(end) - work
        layer = bisect.bisect_right(self._before, target, hi=len(self._macs)) - 1
        return self.first[layer] + int((target - self._before[layer]) / self._macs[layer]) if layer >= 0 else -1

    def most_alone(self, board: Board, time_ps: int) -> list[int]:
        """Return how many channels of each layer, and of no other, a board can do in `time_ps`, memory left out."""
        counts = (end - begin for begin, end in itertools.pairwise(self.first))
        each = zip(self.works, counts, strict=True)
        return [board.most_channels(works, count, board.multipliers, time_ps)[0] for works, count in each]

    def furthest(self, begin: int, board: Board, time_ps: int, alone: Sequence[int]) -> int:
        """Return the last boundary at which a board that begins at `begin` can end to do a sample in `time_ps`.

        `alone` is what `most_alone` returns.
        """
        first = self.layer(begin)
        at = begin + alone[first]
        if at >= self.first[first + 1]:
            at = self._furthest(begin, board, time_ps)
        memory = self.memory
        if memory is None or at == begin or memory.is_within(begin, at, board, time_ps):
            return at
        ends = range(begin + 1, at)
        fewer = bisect.bisect_left(ends, True, key=lambda end: not memory.is_within(begin, end, board, time_ps))
        return begin + fewer

    def _furthest(self, begin: int, board: Board, time_ps: int) -> int:
        """Return the end of a piece that reaches its layer's end, or goes on in further layers; memory left out."""
        limit = self.wall if begin < self.wall else self.end
        at, left = begin, board.multipliers
        for layer in range(self.layer(begin), len(self.works)):
            stop = min(self.first[layer + 1], limit)
            channels, used = board.most_channels(self.works[layer], stop - at, left, time_ps)
            at, left = at + channels, left - used
            if at < stop or at == limit:
                break
        return at

    def earliest(self, end: int, board: Board, time_ps: int, alone: Sequence[int]) -> int:
        """Return the first boundary at which a board that ends at `end` can begin to do a sample in `time_ps`.

        `alone` is what `most_alone` returns.
        """
        last = self.layer(end - 1)
        at = end - alone[last]
        if at <= self.first[last]:
            at = self._earliest(end, board, time_ps)
        memory = self.memory
        if memory is None or at == end or memory.is_within(at, end, board, time_ps):
            return at
        begins = range(at + 1, end)
        return at + 1 + bisect.bisect_left(begins, True, key=lambda begin: memory.is_within(begin, end, board, time_ps))

    def _earliest(self, end: int, board: Board, time_ps: int) -> int:
        """Return the beginning of a piece that reaches its layer's, or begins in layers before; memory left out."""
        limit = self.wall if end > self.wall else 0
        at, left = end, board.multipliers
        for layer in range(self.layer(end - 1), -1, -1):
            stop = max(self.first[layer], limit)
            channels, used = board.most_channels(self.works[layer], at - stop, left, time_ps)
            at, left = at - channels, left - used
            if at > stop or at == limit:
                break
        return at
