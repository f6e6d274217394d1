"""Boundaries: which of them a link can serve in a given time.

What crosses a link depends on its boundary alone, so the time of a sample on a link is a function of the boundary.
Within a layer the bytes of a row of each stream are a linear function of it, or of each group's boundaries.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ..cluster import Link, LinkShare
from ..network import Layer
from .slices import Slice, cut_channels
from .traffic import DataPath, Stream, row_ps, shared_bytes, streams_between

Ends = list[tuple[int, int]]
"""Channels, or the boundaries before them, as intervals (first, last)."""


class Boundaries:
    """The time of a sample on a link at each boundary of the row of all layers' channels."""

    def __init__(self, layers: Sequence[Layer], share: LinkShare = LinkShare.BYTES) -> None:
        """Take the layers, and how streams share links."""
        self._end = sum(map(cut_channels, layers))
        self._share = share
        self._streams: list[tuple[slice, list[tuple[DataPath, int, NDArray[np.int64]]]]] = []
        """Boundaries, and the path, the rows, and the bytes of a row of each stream at them."""
        first = 0
        for before, layer in zip((None, *layers), layers, strict=False):
            channels = cut_channels(layer)
            if before is not None:
                whole = streams_between(before, Slice(layer, 0, channels), share)
                self._add(slice(first, first + 1), [whole])
            for low, high in _straight(layer):
                begins = sorted({low, high - 1})
                ends = [streams_between(layer, Slice(layer, begin, channels), share) for begin in begins]
                self._add(slice(first + low, first + high), ends)
            first += channels
        self._times: dict[Link, NDArray[np.int64]] = {}

    def _add(self, where: slice, ends: list[tuple[Stream, ...]]) -> None:
        """Add boundaries from the streams at the first and the last of them."""
        places = np.arange(where.stop - where.start)
        found = []
        for first, last in zip(ends[0], ends[-1], strict=True):
            step = (last.row_bytes - first.row_bytes) // max(1, len(places) - 1)
            found.append((first.path, first.rows, first.row_bytes + step * places))
        self._streams.append((where, found))

    def sample_ps(self, link: Link) -> NDArray[np.int64]:
        """Return the time in ps of a sample on a link at each boundary."""
        found = self._times.get(link)
        if found is None:
            found = self._times[link] = np.zeros(self._end + 1, np.int64)
            for where, streams in self._streams:
                own: dict[DataPath, NDArray[np.int64]] = {}
                for path, rows, row_bytes in streams:
                    own[path] = own.get(path, np.int64(0)) + rows * link.wire_bytes(row_bytes)
                carried = shared_bytes(self._share, own)
                for path, rows in {(path, rows) for path, rows, _ in streams}:
                    found[where] = np.maximum(found[where], rows * row_ps(link, carried[path], rows))
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


def _straight(layer: Layer) -> Iterator[tuple[int, int]]:
    """Yield spans of a layer's inner boundaries in which the bytes of each path are a linear function of them.

    Inputs go on up to the last output of their group: in steps, unless each output is a group.
    """
    channels, groups = cut_channels(layer), layer.operation.groups
    each = channels if groups == channels else channels // groups
    for low in range(0, channels, max(1, each)):
        span = max(1, low), min(channels, low + each)
        if span[0] < span[1]:
            yield span


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
