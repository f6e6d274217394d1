"""The fine phase: the row of all channels, cut so that the slowest engine of all devices is as fast as possible.

FPDeep, sections 3.2 and 3.4. How long a board takes for a piece of the row is known exactly (row.py). So for a given
time and a device's first channel the furthest last one follows, and the boundaries at which a device can end follow
from those of the device before it; the time is enough if the last device can end at the row's end. The smallest time
that is enough is found by bisection (parametric search), and no cut at channels has a smaller one: equation (7). Among
the cuts that reach it, one with a small V is chosen: equation (5).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

from ..cluster import Board
from .row import Row
from .slices import imbalance

_SPREAD_STEPS = 6

Ends = list[tuple[int, int]]
"""Channels, or the boundaries before them, as intervals (first, last)."""


def reachable(row: Row, boards: Sequence[Board], time_ps: int) -> Iterator[Ends]:
    """Yield for each device the boundaries at which it can end, if each takes at most `time_ps` and has a channel."""
    fitting = {board: _fitting(row, board, time_ps) for board in set(boards)}
    ends: Ends = [(0, 0)]
    for board in boards:
        begins = _common(ends, fitting[board])
        # From b a device can end at b+1 to furthest(b), and these overlap for neighbouring b.
        ends = _merged((low + 1, row.furthest(high, board, time_ps)) for low, high in begins)
        yield ends


def _fitting(row: Row, board: Board, time_ps: int) -> Ends:
    """Return the channels that the board can do in time, each taken alone."""
    layers = itertools.pairwise(row.first)
    return _merged(
        (low, high - 1)
        for works, (low, high) in zip(row.works, layers, strict=True)
        if board.most_channels(works, 1, board.multipliers, time_ps)[0]
    )


def _common(some: Ends, others: Ends) -> Ends:
    both = ((max(a, c), min(b, d)) for a, b in some for c, d in others)
    return [(low, high) for low, high in both if low <= high]


def _merged(intervals: Iterable[tuple[int, int]]) -> Ends:
    merged: Ends = []
    for low, high in intervals:
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(merged[-1][1], high)
        else:
            merged.append((low, high))
    return merged


def is_enough(row: Row, boards: Sequence[Board], time_ps: int) -> bool:
    """Return whether the row can be cut so that no engine takes longer than `time_ps` for a sample."""
    ends: Ends = []
    for ends in reachable(row, boards, time_ps):
        if not ends:
            return False
    return bool(ends) and ends[-1][1] == row.end


def fastest(row: Row, boards: Sequence[Board]) -> int | None:
    """Return the least time of a sample on the slowest engine of all, in ps; None where no cut fits the boards."""
    unit = math.gcd(*(board.period_ps for board in boards))
    perfect = row.work(row.end) / sum(board.capacity for board in boards)
    longest = max(work.macs for layer in row.works for work in layer)
    most = longest * row.end * max(board.period_ps for board in boards) // unit
    low = int(perfect * (1 - 1e-9) / unit) - 1
    step = max(1, low // 64)
    while not is_enough(row, boards, (low + step) * unit):
        if low + step >= most:
            return None
        low, step = low + step, 2 * step
    high = low + step
    while high - low > 1:
        middle = (low + high) // 2
        if is_enough(row, boards, middle * unit):
            high = middle
        else:
            low = middle
    return high * unit


def spread(row: Row, boards: Sequence[Board], time_ps: int) -> list[int]:
    """Return the boundary at which each device ends, within `time_ps` and with a small V of equation (5).

    On equal boards V is least where the least share is largest, so that cut is found by bisection.
    """
    reached = [[(0, 0)], *reachable(row, boards, time_ps)]
    found = _spread(row, boards, time_ps, reached, 0.0)
    assert found is not None, "time_ps is enough"
    low, high = min(shares(row, boards, found)), row.work(row.wall) / sum(board.capacity for board in boards)
    for _ in range(_SPREAD_STEPS):
        middle = (low + high) / 2
        better = _spread(row, boards, time_ps, reached, middle)
        if better is None:
            high = middle
        else:
            low = middle
            found = min(found, better, key=lambda ends: imbalance(shares(row, boards, ends)))
    return found


def _spread(row: Row, boards: Sequence[Board], time_ps: int, reached: Sequence[Ends], least: float) -> list[int] | None:
    """Return the ends of a cut with no share below `least`; None if there is none.

    Each device begins as near as possible to the fair part of those before it, by capacity, on either side of the wall.
    """
    lowest = [0]
    for board in boards:
        lowest.append(max(lowest[-1] + 1, row.filled(lowest[-1], least * board.capacity)))
    able = list(itertools.accumulate((board.capacity for board in boards), initial=0.0))
    found, whole = [row.end], (row.work(row.end), able[-1])
    for device in range(len(boards) - 1, -1, -1):
        board, end = boards[device], found[-1]
        if end == row.wall:
            whole = row.work(end), able[device + 1]
        earliest = row.earliest(end, board, time_ps)
        latest = min(end - 1, row.emptied(end, least * board.capacity))
        begins = _common(reached[device], [(max(earliest, lowest[device]), latest)])
        if not begins:
            return None
        fair = row.nearest(whole[0] * able[device] / whole[1])
        found.append(min((min(max(fair, low), high) for low, high in begins), key=lambda begin: abs(begin - fair)))
    return found[-2::-1]


def shares(row: Row, boards: Sequence[Board], ends: Sequence[int]) -> list[float]:
    """Return for each device before the wall its work over its capacity, in ps."""
    pieces = itertools.pairwise([0, *ends])
    return [
        (row.work(end) - row.work(begin)) / board.capacity
        for (begin, end), board in zip(pieces, boards, strict=True)
        if end <= row.wall
    ]
