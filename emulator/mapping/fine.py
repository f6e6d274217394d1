"""The fine phase: the row of all channels, cut so that the slowest server of the chain is as fast as possible.

FPDeep, sections 3.2 and 3.4. Servers are the devices' engines, their memory ports, and the links. How long a board
takes for a piece of the row is known exactly, and so is how long a link takes at a boundary (row.py).
So for a given time and a device's first channel the furthest last one follows, and the boundaries at which a device can
end follow from those of the device before it and from what its link can carry; the time is enough if the last device
can end at the row's end. The smallest time that is enough is found by bisection (parametric search), and no cut at
channels has a smaller one: equation (7). Among the cuts that reach it, one with a small V is chosen: equation (5).
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from ..cluster import Board, Link
from .row import Boundaries, Ends, Row, common, merged
from .slices import imbalance

_SPREAD_STEPS = 6

Thing = TypeVar("Thing", Board, Link)


@dataclasses.dataclass(frozen=True)
class Servers:
    """What serves samples: the boards that take pieces of the row, and the links between them, one fewer."""

    row: Row
    boards: Sequence[Board]
    links: Sequence[Link]
    boundaries: Boundaries

    @functools.cached_property
    def board_kinds(self) -> tuple[list[Board], list[int]]:
        """The boards that differ, and of each board the number of its kind."""
        return _kinds(self.boards)

    @functools.cached_property
    def link_kinds(self) -> tuple[list[Link], list[int]]:
        """The links that differ, and of each link the number of its kind."""
        return _kinds(self.links)


def _kinds(things: Sequence[Thing]) -> tuple[list[Thing], list[int]]:
    numbers = {thing: number for number, thing in enumerate(dict.fromkeys(things))}
    return list(numbers), [numbers[thing] for thing in things]


def reachable(servers: Servers, time_ps: int) -> Iterator[Ends]:
    """Yield for each device the boundaries at which it can end, if no server takes longer than `time_ps`."""
    row, (boards, of_board), (links, of_link) = servers.row, servers.board_kinds, servers.link_kinds
    alone = [row.most_alone(board, time_ps) for board in boards]
    fitting = [_fitting(row, board, time_ps, most) for board, most in zip(boards, alone, strict=True)]
    carried = [servers.boundaries.within(link, time_ps) for link in links]
    ends: Ends = [(0, 0)]
    for kind, link in itertools.zip_longest(of_board, of_link):
        furthest = functools.partial(row.furthest, board=boards[kind], time_ps=time_ps, alone=alone[kind])
        ends = _reached(common(ends, fitting[kind]), furthest)
        if link is not None:
            ends = common(ends, carried[link])
        yield ends


def _reached(begins: Ends, furthest: Callable[[int], int]) -> Ends:
    """Return where a device can end that begins in one of these intervals.

    From b it can end at b+1 to furthest(b), which never falls: so these overlap for neighbouring b, and of intervals
    that one reaches only the last is asked.
    """
    ends, lows, place = list[tuple[int, int]](), [low for low, _ in begins], 0
    while place < len(begins):
        first, reach = begins[place][0], furthest(begins[place][1])
        while (last := bisect.bisect_right(lows, reach) - 1) > place:
            place, reach = last, max(reach, furthest(begins[last][1]))
        ends.append((first + 1, reach))
        place += 1
    return ends


def _fitting(row: Row, board: Board, time_ps: int, alone: Sequence[int]) -> Ends:
    """Return the channels that the board can do in time, each taken alone."""
    memory, spans = row.memory, []
    for most, (low, high) in zip(alone, itertools.pairwise(row.first), strict=True):
        if most:
            # The last channel of a layer has the bias, too.
            pieces = [(low, high - 1), (high - 1, high)] if memory else [(low, high)]
            spans += [
                (begin, end - 1)
                for begin, end in pieces
                if begin < end and (memory is None or memory.is_within(begin, begin + 1, board, time_ps))
            ]
    return merged(spans)


def is_enough(servers: Servers, time_ps: int) -> bool:
    """Return whether the row can be cut so that no server takes longer than `time_ps` for a sample."""
    ends: Ends = []
    for ends in reachable(servers, time_ps):
        if not ends:
            return False
    return bool(ends) and ends[-1][1] == servers.row.end


def fastest(servers: Servers, at_least_ps: int = 0) -> int | None:
    """Return the least time in ps of a sample on the slowest server; None where no cut fits the boards.

    It is exact for engines and links. With memory ports it is at most 0.005 % more, unless the bound `at_least_ps` is
    enough.
    """
    row, boards = servers.row, servers.boards
    if at_least_ps and is_enough(servers, at_least_ps):
        return at_least_ps
    unit = math.gcd(*(board.period_ps for board in boards))
    perfect = row.work(row.end) / sum(board.capacity for board in boards)
    slowest = servers.boundaries.slowest_ps(set(servers.links))
    longest = max(work.macs for layer in row.works for work in layer)
    most = (longest * row.end * max(board.period_ps for board in boards) + slowest) // unit + 1
    low = max(int(perfect * (1 - 1e-9) / unit) - 1, -(-at_least_ps // unit) - 1)
    step = max(1, low // 64)
    while not is_enough(servers, (low + step) * unit):
        if low + step >= most:
            return None
        low, step = low + step, 2 * step
    high, gap = low + step, 1
    while high - low > gap:
        gap = 1 if row.memory is None else max(1, low // 20_000)
        middle = (low + high) // 2
        if is_enough(servers, middle * unit):
            high = middle
        else:
            low = middle
    # Engines take whole periods, links do not.
    between = servers.boundaries.times_ps(set(servers.links), low * unit, high * unit)
    first = bisect.bisect_left(between, True, key=lambda time_ps: is_enough(servers, time_ps))
    return between[first] if first < len(between) else high * unit


def spread(servers: Servers, time_ps: int) -> list[int] | None:
    """Return the boundary at which each device ends, within `time_ps` and with a small V of equation (5).

    On equal boards V is least where the least share is largest, so that cut is found by bisection. None where memory
    ports need longer: what a piece sheds is near the least, not always the least.
    """
    row, boards = servers.row, servers.boards
    reached = [[(0, 0)], *reachable(servers, time_ps)]
    best = _spread(servers, time_ps, reached, 0.0)
    if best is None:
        return None
    low, high = min(shares(row, boards, best)), row.work(row.wall) / sum(board.capacity for board in boards)
    for _ in range(_SPREAD_STEPS):
        middle = (low + high) / 2
        better = _spread(servers, time_ps, reached, middle)
        if better is None:
            high = middle
        else:
            low = middle
            best = min(best, better, key=lambda ends: imbalance(shares(row, boards, ends)))
    return best


def _spread(servers: Servers, time_ps: int, reached: Sequence[Ends], least: float) -> list[int] | None:
    """Return the ends of a cut with no share below `least`; None if there is none.

    Each device begins as near as possible to the fair part of those before it, by capacity, on either side of the wall.
    """
    row, boards, (differing, of_board) = servers.row, servers.boards, servers.board_kinds
    alone = [row.most_alone(board, time_ps) for board in differing]
    lowest = [0]
    for board in boards:
        lowest.append(max(lowest[-1] + 1, row.filled(lowest[-1], least * board.capacity)))
    able = list(itertools.accumulate((board.capacity for board in boards), initial=0.0))
    ends, whole = [row.end], (row.work(row.end), able[-1])
    for device in range(len(boards) - 1, -1, -1):
        board, end = boards[device], ends[-1]
        if end == row.wall:
            whole = row.work(end), able[device + 1]
        earliest = row.earliest(end, board, time_ps, alone[of_board[device]])
        latest = min(end - 1, row.emptied(end, least * board.capacity))
        begins = common(reached[device], [(max(earliest, lowest[device]), latest)])
        if not begins:
            return None
        fair = row.nearest(whole[0] * able[device] / whole[1])
        ends.append(min((min(max(fair, low), high) for low, high in begins), key=lambda begin: abs(begin - fair)))
    return ends[-2::-1]


def shares(row: Row, boards: Sequence[Board], ends: Sequence[int]) -> list[float]:
    """Return for each device before the wall its work over its capacity, in ps."""
    pieces = itertools.pairwise([0, *ends])
    return [
        (row.work(end) - row.work(begin)) / board.capacity
        for (begin, end), board in zip(pieces, boards, strict=True)
        if end <= row.wall
    ]
