"""The row of all layers' channels: the longest piece that a board can take, and what a link can
serve at a boundary.

A board can do a piece in a given time if it has the multipliers that this needs
(`Board.most_channels`), and if its memory port moves in that time what does not fit on chip
(`memory`). A part of a piece needs no more of either, so for one end of a piece the furthest other
end is found by bisection. No piece spans the *wall*, which is between the convolutions and the
off-chip layers, or at the end if there are none.

What crosses a link depends on its boundary alone, so the
time of a sample on a link is a function of the boundary. Within a layer the bytes of a row of each
stream are a linear function of it, or of each group's boundaries.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..cluster import Board, Link, LinkShare, Work
from ..network import Layer
from ..number import SINGLE, Precision
from .slices import Slice, cut_channels
from .traffic import DataPath, Stream, row_ps, shared_bytes, streams_between


class PieceMemory(Protocol):
    """The time that memory takes for a piece of the row."""

    def is_within(self, begin: int, end: int, board: Board, time_ps: int) -> bool:
        """Return whether a board's memory port moves in `time_ps` what does not fit on chip of a
        piece.
        """


class Row:
    """All layers' channels in one row; a boundary has the number of the channel after it."""

    def __init__(
        self,
        counts: Sequence[int],
        works: Sequence[Sequence[Work]],
        wall: int,
        memory: PieceMemory | None = None,
    ) -> None:
        """Take each layer's number of channels and works of one; the wall is before layer `wall`,
        or after all.
        """
        self.memory = memory
        self.first = list(itertools.accumulate(counts, initial=0))
        self.works = works
        self.wall = self.first[wall]
        self._macs = []
        for layer in works:
            self._macs.append(sum(work.macs for work in layer))
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
        """Return the first boundary with at least `work` since `begin`, up to the wall; beyond the
        wall, `begin`.
        """
        if begin >= self.wall:
            return begin
        target = self.work(begin) + work
        layer = bisect.bisect_left(self._before, target, hi=self.layer(self.wall - 1) + 1) - 1
        if layer < 0:
            return begin
        return min(
            self.first[layer] + math.ceil((target - self._before[layer]) / self._macs[layer]),
            self.wall,
        )

    def emptied(self, end: int, work: float) -> int:
        """Return the last boundary with at least `work` from it to `end`; beyond the wall, the one
        before `end`.
        """
        if end > self.wall:
            return end - 1
        target = self.work(end) - work
        layer = bisect.bisect_right(self._before, target, hi=len(self._macs)) - 1
        return (
            self.first[layer] + int((target - self._before[layer]) / self._macs[layer])
            if layer >= 0
            else -1
        )

    def most_alone(self, board: Board, time_ps: int) -> list[int]:
        """Return how many channels of each layer, and of no other, a board can do in `time_ps`,
        memory left out.
        """
        counts = (end - begin for begin, end in itertools.pairwise(self.first))
        layers = zip(self.works, counts, strict=True)
        return [
            board.most_channels(works, count, board.multipliers, time_ps)[0]
            for works, count in layers
        ]

    def furthest(self, begin: int, board: Board, time_ps: int, alone: Sequence[int]) -> int:
        """Return the last boundary at which a board that begins at `begin` can end to do a sample
        in `time_ps`.

        `alone` is what `most_alone` returns.
        """
        first = self.layer(begin)
        at = begin + alone[first]
        # `alone` is of one layer: a piece that takes the rest of it may go on in the next ones.
        if at >= self.first[first + 1]:
            at = self._furthest(begin, board, time_ps)
        memory = self.memory
        if memory is None or at == begin or memory.is_within(begin, at, board, time_ps):
            return at
        ends = range(begin + 1, at)
        # Ends in order: a longer piece has no less to move, so those that fit come first.
        fewer = bisect.bisect_left(
            ends, True, key=lambda end: not memory.is_within(begin, end, board, time_ps)
        )
        return begin + fewer

    def _furthest(self, begin: int, board: Board, time_ps: int) -> int:
        """Return the end of a piece that reaches its layer's end, or goes on in further layers;
        memory left out.
        """
        limit = self.wall if begin < self.wall else self.end
        at, left = begin, board.multipliers
        for layer in range(self.layer(begin), len(self.works)):
            stop = min(self.first[layer + 1], limit)
            channels, used = board.most_channels(self.works[layer], stop - at, left, time_ps)
            at, left = at + channels, left - used
            # The multipliers are used up, or the wall, or the row's end, is reached.
            if at < stop or at == limit:
                break
        return at

    def earliest(self, end: int, board: Board, time_ps: int, alone: Sequence[int]) -> int:
        """Return the first boundary at which a board that ends at `end` can begin to do a sample in
        `time_ps`.

        `alone` is what `most_alone` returns.
        """
        last = self.layer(end - 1)
        at = end - alone[last]
        # As in `furthest`: the piece may begin in layers before.
        if at <= self.first[last]:
            at = self._earliest(end, board, time_ps)
        memory = self.memory
        if memory is None or at == end or memory.is_within(at, end, board, time_ps):
            return at
        # Beginnings in order: the later, the less there is to move, so those that fit come last.
        begins = range(at + 1, end)
        return (
            at
            + 1
            + bisect.bisect_left(
                begins, True, key=lambda begin: memory.is_within(begin, end, board, time_ps)
            )
        )

    def _earliest(self, end: int, board: Board, time_ps: int) -> int:
        """Return the beginning of a piece that reaches its layer's, or begins in layers before;
        memory left out.
        """
        limit = self.wall if end > self.wall else 0
        at, left = end, board.multipliers
        for layer in range(self.layer(end - 1), -1, -1):
            stop = max(self.first[layer], limit)
            channels, used = board.most_channels(self.works[layer], at - stop, left, time_ps)
            at, left = at - channels, left - used
            # The multipliers are used up, or the wall, or the row's beginning, is reached.
            if at > stop or at == limit:
                break
        return at


Ends = list[tuple[int, int]]
"""Channels, or the boundaries before them, as intervals (first, last)."""


class Boundaries:
    """The time of a sample on a link at each boundary of the row of all layers' channels."""

    def __init__(
        self,
        layers: Sequence[Layer],
        share: LinkShare = LinkShare.BYTES,
        precision: Precision = SINGLE,
    ) -> None:
        """Take the layers, how streams share links, and the formats of their values."""
        self._end = sum(map(cut_channels, layers))
        self._share = share
        self._streams: list[tuple[slice, list[tuple[DataPath, int, NDArray[np.int64]]]]] = []
        """Boundaries, and the path, the rows, and the bytes of a row of each stream at them."""
        first = 0
        for before, layer in zip((None, *layers), layers, strict=False):
            channels = cut_channels(layer)
            if before is not None:
                whole = streams_between(before, Slice(layer, 0, channels), share, precision)
                self._add(slice(first, first + 1), [whole])
            for low, high in _straight(layer):
                begins = sorted({low, high - 1})
                rights = [Slice(layer, begin, channels) for begin in begins]
                ends = [streams_between(layer, right, share, precision) for right in rights]
                self._add(slice(first + low, first + high), ends)
            first += channels
        self._times: dict[Link, NDArray[np.int64]] = {}

    def _add(self, where: slice, ends: list[tuple[Stream, ...]]) -> None:
        """Add boundaries from the streams at the first and the last of them."""
        places = np.arange(where.stop - where.start)
        bytes_at = []
        for first, last in zip(ends[0], ends[-1], strict=True):
            # Between the first and the last boundary, both grow evenly (`_straight`).
            channels, begin = (
                one + (other - one) // max(1, len(places) - 1) * places
                for one, other in ((first.channels, last.channels), (first.begin, last.begin))
            )
            row_bytes = first.bytes_from(channels, begin)
            bytes_at.append((first.path, first.rows, row_bytes))
        self._streams.append((where, bytes_at))

    def sample_ps(self, link: Link) -> NDArray[np.int64]:
        """Return the time in ps of a sample on a link at each boundary."""
        times = self._times.get(link)
        if times is None:
            times = self._times[link] = np.zeros(self._end + 1, np.int64)
            for where, streams in self._streams:
                own: dict[DataPath, NDArray[np.int64]] = {}
                for path, rows, row_bytes in streams:
                    own[path] = own.get(path, np.int64(0)) + rows * link.wire_bytes(row_bytes)
                carried = shared_bytes(self._share, own)
                for path, rows in {(path, rows) for path, rows, _ in streams}:
                    times[where] = np.maximum(
                        times[where], rows * row_ps(link, carried[path], rows)
                    )
        return times

    def within(self, link: Link, time_ps: int) -> Ends:
        """Return the boundaries at which a link takes at most `time_ps` for a sample."""
        edges = np.flatnonzero(
            np.diff(self.sample_ps(link) <= time_ps, prepend=False, append=False)
        ).tolist()
        # Edges are where the answer changes: to yes at even places, to no at odd ones.
        return [(begin, end - 1) for begin, end in zip(edges[::2], edges[1::2], strict=True)]

    def slowest_ps(self, links: Collection[Link]) -> int:
        """Return the longest time in ps of a sample on one of the links at a boundary."""
        return max((int(self.sample_ps(link).max()) for link in links), default=0)

    def times_ps(self, links: Collection[Link], above_ps: int, below_ps: int) -> list[int]:
        """Return in ascending order all times in ps between two of a sample on one of the links at
        a boundary.
        """
        by_link = (self.sample_ps(link) for link in links)
        between = [times[(times > above_ps) & (times < below_ps)] for times in by_link]
        times = np.sort(np.concatenate([np.zeros(0, np.int64), *between]))
        # With `above_ps` in front the first one counts as different, too.
        differ: list[int] = times[np.diff(times, prepend=above_ps) > 0].tolist()
        return differ


def _straight(layer: Layer) -> Iterator[tuple[int, int]]:
    """Yield spans of a layer's inner boundaries in which the channels of each path are a linear
    function of them.

    Inputs go on up to the last output of their group: in steps, unless each output is a group.
    """
    channels, groups = cut_channels(layer), layer.operation.groups
    size = channels if groups == channels else channels // groups
    for low in range(0, channels, max(1, size)):
        span = max(1, low), min(channels, low + size)
        if span[0] < span[1]:
            yield span


def common(some: Ends, others: Ends) -> Ends:
    """Return what lies in intervals of both lists, each in ascending order."""
    shared, i, j = [], 0, 0
    while i < len(some) and j < len(others):
        low, high = max(some[i][0], others[j][0]), min(some[i][1], others[j][1])
        if low <= high:
            shared.append((low, high))
        # The interval that ends first meets none of the following.
        if some[i][1] < others[j][1]:
            i += 1
        else:
            j += 1
    return shared


def merged(intervals: Iterable[tuple[int, int]]) -> Ends:
    """Return intervals in ascending order, with those joined that overlap or touch."""
    joined: Ends = []
    for low, high in intervals:
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(joined[-1][1], high)
        else:
            joined.append((low, high))
    return joined
