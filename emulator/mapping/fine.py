"""The fine phase: the row of all channels, cut so that the slowest engine of all devices is as fast as can be.

FPDeep, sections 3.2 and 3.4. How long a board takes for a piece of the row is known exactly (row.py). So for a given
time and a device's first channel the furthest last one follows, and the boundaries at which a device can end are worked
out from those of the device before it; the time is enough if the last device can end at the row's end. The smallest
time that is enough is found by bisection (parametric search), and no cut at channels has a smaller one: equation (7).
Among the cuts that reach it one with a small V is sought: equation (5).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

from ..cluster.board import Board
from .row import Row, most_channels
from .slices import imbalance

_SPREAD_STEPS = 6

Ends = list[tuple[int, int]]
"""Channels or the boundaries before them, as intervals, first and last."""


def reachable(row: Row, boards: Sequence[Board], time_ps: int) -> Iterator[Ends]:
    """For each device in turn the boundaries at which it can end, if none takes longer, and each has a channel."""
    fitting = {board: _fitting(row, board, time_ps) for board in set(boards)}
    ends: Ends = [(0, 0)]
    for board in boards:
        begins = _common(ends, fitting[board])
        cycles = time_ps // board.period_ps
        # From b a device can end at b+1 to furthest(b), and these overlap for neighbouring b.
        ends = _merged((low + 1, row.furthest(high, board.multipliers, cycles)) for low, high in begins)
        yield ends


def _fitting(row: Row, board: Board, time_ps: int) -> Ends:
    """The channels of which the board can take one at the least."""
    layers = itertools.pairwise(row.first)
    cycles = time_ps // board.period_ps
    return _merged(
        (low, high - 1)
        for demands, (low, high) in zip(row.demands, layers, strict=True)
        if most_channels(demands, 1, board.multipliers, cycles)[0]
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
    """Whether the row can be cut so that no engine takes longer for a sample."""
    ends: Ends = []
    for ends in reachable(row, boards, time_ps):
        if not ends:
            return False
    return bool(ends) and ends[-1][1] == row.end


def fastest(row: Row, boards: Sequence[Board]) -> int | None:
    """The least time of a sample, in ps, on the slowest engine of all; None where even a tile for each is too much."""
    unit = math.gcd(*(board.period_ps for board in boards))
    perfect = row.work(row.end) / sum(map(capacity, boards))
    longest = max(demand.rows * demand.convolutions for layer in row.demands for demand in layer)
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
    """Where each device ends, within this time and with V of equation (5) as small as is found.

    On equal boards V is least where the least share is largest, so that is sought by bisection.
    """
    reached = [[(0, 0)], *reachable(row, boards, time_ps)]
    found = _spread(row, boards, time_ps, reached, 0.0)
    assert found is not None, "time_ps is enough"
    low, high = min(shares(row, boards, found)), row.work(row.wall) / sum(map(capacity, boards))
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
    """The same with no share below `least`, each device beginning as near as may be to what is due to those before it;
    None if that does not work out. Due is work by capacity, on either side of the wall."""
    lowest = [0]
    for board in boards:
        lowest.append(max(lowest[-1] + 1, row.filled(lowest[-1], least * capacity(board))))
    able = list(itertools.accumulate(map(capacity, boards), initial=0.0))
    found, whole = [row.end], (row.work(row.end), able[-1])
    for device in range(len(boards) - 1, -1, -1):
        board, end = boards[device], found[-1]
        if end == row.wall:
            whole = row.work(end), able[device + 1]
        earliest = row.earliest(end, board.multipliers, time_ps // board.period_ps)
        latest = min(end - 1, row.emptied(end, least * capacity(board)))
        begins = _common(reached[device], [(max(earliest, lowest[device]), latest)])
        if not begins:
            return None
        due = row.nearest(whole[0] * able[device] / whole[1])
        found.append(min((min(max(due, low), high) for low, high in begins), key=lambda begin: abs(begin - due)))
    return found[-2::-1]


def shares(row: Row, boards: Sequence[Board], ends: Sequence[int]) -> list[float]:
    """Of each device before the wall its work over its capacity, in ps."""
    pieces = itertools.pairwise([0, *ends])
    return [
        (row.work(end) - row.work(begin)) / capacity(board)
        for (begin, end), board in zip(pieces, boards, strict=True)
        if end <= row.wall
    ]


def capacity(board: Board) -> float:
    """Multiplier-cycles a picosecond."""
    return board.multipliers / board.period_ps
