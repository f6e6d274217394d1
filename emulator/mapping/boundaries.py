"""Boundaries: which of them a link can serve in a given time.

What crosses a link depends on its boundary alone, so the time of a sample on a link is a function of the boundary.
Within a layer the bytes of each direction are a linear function of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ..cluster import Link
from ..network import Layer
from .slices import Slice, cut_channels
from .traffic import Stream, row_ps, streams_between

Ends = list[tuple[int, int]]
"""Channels, or the boundaries before them, as intervals (first, last)."""


class Boundaries:
    """The time of a sample on a link at each boundary of the row of all layers' channels."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self._end = sum(map(cut_channels, layers))
        self._bytes = np.zeros((2, self._end + 1), np.int64)
        """To the right and to the left."""
        self._rows: list[tuple[slice, tuple[tuple[int, int], ...]]] = []
        """Boundaries with the (direction, rows) of their streams."""
        first = 0
        for before, layer in zip((None, *layers), layers, strict=False):
            channels = cut_channels(layer)
            if before is not None:
                self._add(slice(first, first + 1), [streams_between(before, Slice(layer, 0, channels))])
            if channels > 1:
                ends = [streams_between(layer, Slice(layer, begin, channels)) for begin in sorted({1, channels - 1})]
                self._add(slice(first + 1, first + channels), ends)
            first += channels
        self._times: dict[int, NDArray[np.int64]] = {}

    def _add(self, where: slice, ends: list[tuple[Stream, ...]]) -> None:
        count = where.stop - where.start
        for direction in (0, 1):
            carried = [sum(s.sample_bytes for s in found if s.path.is_forward is (direction == 0)) for found in ends]
            if len(carried) == 1:
                self._bytes[direction, where] = carried[0]
            else:
                step = (carried[1] - carried[0]) // (count - 1)
                self._bytes[direction, where] = carried[0] + step * np.arange(count)
        rows = {(0 if stream.path.is_forward else 1, stream.rows) for found in ends for stream in found}
        self._rows.append((where, tuple(sorted(rows))))

    def sample_ps(self, link: Link) -> NDArray[np.int64]:
        """Return the time in ps of a sample on a link at each boundary."""
        found = self._times.get(link.bandwidth_mbps)
        if found is None:
            found = self._times[link.bandwidth_mbps] = np.zeros(self._end + 1, np.int64)
            for where, rows in self._rows:
                for direction, count in rows:
                    found[where] = np.maximum(found[where], count * row_ps(link, self._bytes[direction, where], count))
        return found

    def within(self, link: Link, time_ps: int) -> Ends:
        """Return the boundaries at which a link takes at most `time_ps` for a sample."""
        edges = np.flatnonzero(np.diff(self.sample_ps(link) <= time_ps, prepend=False, append=False)).tolist()
        return [(begin, end - 1) for begin, end in zip(edges[::2], edges[1::2], strict=True)]

    def times_ps(self, links: Collection[Link], above_ps: int) -> list[int]:
        """Return in ascending order all times in ps of a sample on one of the links at a boundary, above `above_ps`."""
        found = [self.sample_ps(link) for link in links]
        times = np.unique(np.concatenate([np.zeros(0, np.int64), *found]))
        return [int(time) for time in times[times > above_ps]]


def common(some: Ends, others: Ends) -> Ends:
    """Return what lies in intervals of both lists, each in ascending order."""
    found, i, j = [], 0, 0
    while i < len(some) and j < len(others):
        low, high = max(some[i][0], others[j][0]), min(some[i][1], others[j][1])
        if low <= high:
            found.append((low, high))
        if some[i][1] < others[j][1]:
            i += 1
        else:
            j += 1
    return found


def merged(intervals: Iterable[tuple[int, int]]) -> Ends:
    """Return intervals in ascending order, with those joined that overlap or touch."""
    found: Ends = []
    for low, high in intervals:
        if found and low <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], high)
        else:
            found.append((low, high))
    return found
