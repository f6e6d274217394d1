"""The partition: which device holds which channels of which layers (FPDeep, sections 3.2, 3.4, 4.1
and 4.2).

All layers' channels form one row, which is cut at channel boundaries into consecutive pieces, one
for each device; so a device may hold slices of several layers, and a layer may span many devices:

    layers     |  conv1  |      conv2      |  conv3  |
    pieces     |      0     |     1     |     2      |      device 1 has a part of conv2, devices 0 and 2 the rest of it

`coarse.py` cuts between layers, for comparison; the fine phase cuts between channels, from scratch
and exactly, so that the slowest server of the chain is as fast as possible. Servers are the
devices' engines, their memory ports, and the links. How long a board takes for a piece of the row
is known exactly, and so is how long a link takes at a boundary (`row.py`). So for a given time and
a device's first channel the furthest last one follows, and the boundaries at which a device can end
follow from those of the device before it and from what its link can carry; the time is enough if
the last device can end at the row's end. The smallest time that is enough is found by bisection
(parametric search), and no cut at channels has a smaller one: equation (7). Among the cuts that
reach it, one with a small V is chosen: equation (5).

Fully connected layers at the network's end whose parameters and gradients do not fit into a board's
on-chip memory get the last devices of the chain to themselves, with off-chip memory ("off-chip only
for the FC layer": sections 6.3.1 and 7), just as many devices as keep them from being the slowest.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from ..cluster import Board, Cluster, Link
from ..common import InputError, plural
from ..network import Layer, Network
from ..number import Storage
from .balancing import stored_weight_bytes
from .coarse import coarse_shares
from .engines import channel_works, slice_works
from .row import Boundaries, Ends, PieceMemory, Row, common, merged
from .slices import (
    Balance,
    Mapping,
    Slice,
    channels_together,
    cut_channels,
    cut_pieces,
    imbalance,
)

_SPREAD_STEPS = 6

Thing = TypeVar("Thing", Board, Link)


@dataclasses.dataclass(frozen=True)
class Servers:
    """What serves samples: the boards that take pieces of the row, and the links between them, one
    fewer.
    """

    row: Row
    boards: Sequence[Board]
    links: Sequence[Link]
    boundaries: Boundaries
    between_blocks: Ends | None = None
    """Where the row may be cut, if blocks of channels stay together."""

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
    """Yield for each device the boundaries at which it can end, if no server takes longer than
    `time_ps`.
    """
    row, (boards, of_board), (links, of_link) = servers.row, servers.board_kinds, servers.link_kinds
    # Once for each kind: a cluster has many devices, but few kinds of boards and links.
    alone = [row.most_alone(board, time_ps) for board in boards]
    fitting = [
        _fitting(row, board, time_ps, most) for board, most in zip(boards, alone, strict=True)
    ]
    carried = [servers.boundaries.within(link, time_ps) for link in links]
    ends: Ends = [(0, 0)]
    # No link follows the last device: of that one `zip_longest` makes None.
    for kind, link in itertools.zip_longest(of_board, of_link):
        furthest = functools.partial(
            row.furthest, board=boards[kind], time_ps=time_ps, alone=alone[kind]
        )
        ends = _reached(common(ends, fitting[kind]), furthest)
        if servers.between_blocks is not None:
            ends = common(ends, servers.between_blocks)
        if link is not None:
            ends = common(ends, carried[link])
        yield ends


def _reached(begins: Ends, furthest: Callable[[int], int]) -> Ends:
    """Return where a device can end that begins in one of these intervals.

    From b it can end at b+1 to furthest(b), which never falls: so these overlap for neighbouring b,
    and of intervals that one reaches only the last is asked.
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
                if begin < end
                and (memory is None or memory.is_within(begin, begin + 1, board, time_ps))
            ]
    return merged(spans)


def is_enough(servers: Servers, time_ps: int) -> bool:
    """Return whether the row can be cut so that no server takes longer than `time_ps` for a
    sample.
    """
    ends: Ends = []
    for ends in reachable(servers, time_ps):
        if not ends:
            return False
    return bool(ends) and ends[-1][1] == servers.row.end


def fastest(servers: Servers, at_least_ps: int = 0) -> int | None:
    """Return the least time in ps of a sample on the slowest server; None where no cut fits the
    boards.

    It is exact for engines and links. With memory ports it is at most 0.005 % more, unless the
    bound `at_least_ps` is enough.
    """
    row, boards = servers.row, servers.boards
    if at_least_ps and is_enough(servers, at_least_ps):
        return at_least_ps
    # Engines take whole periods: only multiples of what all periods share can be the answer.
    unit = math.gcd(*(board.period_ps for board in boards))
    perfect = row.work(row.end) / sum(board.capacity for board in boards)
    slowest = servers.boundaries.slowest_ps(set(servers.links))
    longest = max(work.macs for layer in row.works for work in layer)
    most = (longest * row.end * max(board.period_ps for board in boards) + slowest) // unit + 1
    # `low` must never be enough, and `perfect` is a float: a little less than it.
    low = max(int(perfect * (1 - 1e-9) / unit) - 1, -(-at_least_ps // unit) - 1)
    step = max(1, low // 64)
    # By growing steps from below, since most cuts come near to the perfect time.
    while not is_enough(servers, (low + step) * unit):
        if low + step >= most:
            return None
        low, step = low + step, 2 * step
    high, gap = low + step, 1
    while high - low > gap:
        # With memory a try is dear: it ends within 1/20,000.
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
    """Return the boundary at which each device ends, within `time_ps` and with a small V of
    equation (5).

    On equal boards V is least where the least share is largest, so that cut is found by bisection.
    None where memory ports need longer: what a piece sheds is near the least, not always the least.
    """
    row, boards = servers.row, servers.boards
    reached = [[(0, 0)], *reachable(servers, time_ps)]
    best = _spread(servers, time_ps, reached, 0.0)
    if best is None:
        return None
    low, high = (
        min(shares(row, boards, best)),
        row.work(row.wall) / sum(board.capacity for board in boards),
    )
    for _ in range(_SPREAD_STEPS):
        middle = (low + high) / 2
        better = _spread(servers, time_ps, reached, middle)
        if better is None:
            high = middle
        else:
            low = middle
            best = min(best, better, key=lambda ends: imbalance(shares(row, boards, ends)))
    return best


def _spread(
    servers: Servers, time_ps: int, reached: Sequence[Ends], least: float
) -> list[int] | None:
    """Return the ends of a cut with no share below `least`; None if there is none.

    Each device begins as near as possible to the fair part of those before it, by capacity, on
    either side of the wall.
    """
    row, boards, (differing, of_board) = servers.row, servers.boards, servers.board_kinds
    alone = [row.most_alone(board, time_ps) for board in differing]
    lowest = [0]
    for board in boards:
        lowest.append(max(lowest[-1] + 1, row.filled(lowest[-1], least * board.capacity)))
    able = list(itertools.accumulate((board.capacity for board in boards), initial=0.0))
    ends, whole = [row.end], (row.work(row.end), able[-1])
    # From the last device back: of each boundary, `reached` says that the devices before it can
    # fill the row up to there.
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
        ends.append(
            min(
                (min(max(fair, low), high) for low, high in begins),
                key=lambda begin: abs(begin - fair),
            )
        )
    return ends[-2::-1]


def shares(row: Row, boards: Sequence[Board], ends: Sequence[int]) -> list[float]:
    """Return for each device before the wall its work over its capacity, in ps."""
    pieces = itertools.pairwise([0, *ends])
    return [
        (row.work(end) - row.work(begin)) / board.capacity
        for (begin, end), board in zip(pieces, boards, strict=True)
        if end <= row.wall
    ]


_LATER = 1000
"""A cut for memory ports that turns out to need longer gets a thousandth more time."""


def partition(network: Network, cluster: Cluster, devices: int) -> Mapping:
    """Cut `network` over `devices` boards so that the slowest engine or link of all is as fast as
    possible.

    Memory is left out, but for fully connected layers that do not fit: they are kept apart (see
    above).

    Raises:
        InputError: zero devices, more devices than channels, or too few multipliers.
    """
    boards = _boards(network, cluster, devices)
    on_chip = (
        _layers_on_chip(network.layers, boards[-1], cluster.storage)
        if devices > 1
        else len(network.layers)
    )
    return _cut(network, cluster, boards, on_chip)


def partition_with_memory(
    network: Network,
    cluster: Cluster,
    devices: int,
    memory: PieceMemory | None,
    at_least_ps: int = 0,
    *,
    balanced: bool = True,
) -> Mapping:
    """Cut `network` over `devices` boards so that the slowest engine, link or memory port is as
    fast as possible.

    Args:
        network, cluster, devices: what to cut, for what.
        memory: what the pieces need of their boards' memory ports; None leaves memory out.
        at_least_ps: a time in ps of a sample that is known to be too short, or just enough.
        balanced: whether the mapping says how even it is.

    Raises:
        InputError: zero devices, more devices than channels, or too few multipliers.
    """
    boards, layers = _boards(network, cluster, devices), len(network.layers)
    return _cut(network, cluster, boards, layers, memory, at_least_ps, balanced=balanced)


def with_balance(mapping: Mapping, cluster: Cluster) -> Mapping:
    """Return a mapping that is not from here with its evenness, so that its engines are as fast as
    its slowest.
    """
    layers, devices = mapping.network.layers, len(mapping.devices)
    boards = [cluster.board(device) for device in range(devices)]
    servers = _servers(mapping.network, cluster, boards, len(layers))
    lasts = (slices[-1] for slices in mapping.devices)
    ends = [servers.row.first[part.layer.index] + part.end for part in lasts]
    return dataclasses.replace(
        mapping, balance=_balance(mapping.devices, servers.row, boards, ends, len(layers))
    )


def can_take(network: Network, cluster: Cluster, devices: int, time_ps: int) -> bool:
    """Return whether some cut over `devices` boards takes a sample in `time_ps` on each engine and
    link.

    Memory is left out. False where no cut fits the boards.

    Raises:
        InputError: zero devices, or more devices than channels.
    """
    return is_enough(
        _servers(network, cluster, _boards(network, cluster, devices), len(network.layers)), time_ps
    )


def _boards(network: Network, cluster: Cluster, devices: int) -> list[Board]:
    precision = cluster.precision
    channels = sum(cut_pieces(layer, precision) for layer in network.layers)
    if not 1 <= devices <= channels:
        counted = plural(channels, "channel")
        if precision.dot:
            counted = f"{plural(channels, 'block')} of {precision.whole_channels} channels"
        raise InputError(
            f"`devices` = {devices}: must be 1 to {channels}: {network.name} has {counted} to cut,"
            " and each device needs at least one; more boards train as `replicas` of such a chain"
        )
    return [cluster.board(device) for device in range(devices)]


def _cut(
    network: Network,
    cluster: Cluster,
    boards: Sequence[Board],
    on_chip: int,
    memory: PieceMemory | None = None,
    at_least_ps: int = 0,
    *,
    balanced: bool = True,
) -> Mapping:
    """Cut the network so that the first `on_chip` layers share no board with the others."""
    layers, devices = network.layers, len(boards)
    servers = _servers(network, cluster, boards, on_chip, memory)
    row = servers.row
    server_ps = fastest(servers, at_least_ps)
    if server_ps is None:
        raise InputError(_too_small(network, cluster, devices))
    spread_ends = spread(servers, server_ps)
    while spread_ends is None:
        server_ps += max(1, server_ps // _LATER)
        spread_ends = spread(servers, server_ps)
    ends = [0, *spread_ends]
    held = tuple(_slices(layers, row, begin, end) for begin, end in itertools.pairwise(ends))
    balance = _balance(held, row, boards, ends[1:], on_chip, server_ps) if balanced else None
    return Mapping(network, held, range(ends.index(row.wall), devices), balance)


def _balance(
    held: Sequence[Sequence[Slice]],
    row: Row,
    boards: Sequence[Board],
    ends: Sequence[int],
    on_chip: int,
    server_ps: int = 0,
) -> Balance:
    """Return the evenness of slices whose pieces of the row have these ends; `on_chip` layers stand
    before the wall.
    """
    off_chip_from = [0, *ends].index(row.wall)
    work = [row.work(row.first[i + 1]) - row.work(row.first[i]) for i in range(on_chip)]
    able = [board.capacity for board in boards]
    before, after = (
        imbalance(coarse_shares(work, able[:off_chip_from])),
        imbalance(shares(row, boards, ends)),
    )
    slowest_ps = max(_slowest_ps(slices, board) for slices, board in zip(held, boards, strict=True))
    return Balance(slowest_ps, _perfect_ps(row, able), before, after, server_ps)


def _servers(
    network: Network,
    cluster: Cluster,
    boards: Sequence[Board],
    on_chip: int,
    memory: PieceMemory | None = None,
) -> Servers:
    """Return the boards and links between them, and the row that they take, with a wall after
    `on_chip` layers.
    """
    layers = network.layers
    channels, works = list(map(cut_channels, layers)), list(map(channel_works, layers))
    row = Row(channels, works, on_chip, memory)
    links = [cluster.link_at(link) for link in range(len(boards) - 1)]
    boundaries = Boundaries(layers, cluster.link.share, cluster.precision)
    blocks = [channels_together(layer, cluster.precision) for layer in layers]
    between = _between_blocks(row, blocks) if max(blocks) > 1 else None
    return Servers(row, boards, links, boundaries, between)


def _between_blocks(row: Row, blocks: Sequence[int]) -> Ends:
    """Return the boundaries of a row that part no block of a layer's channels."""
    layers = zip(itertools.pairwise(row.first), blocks, strict=True)
    places = (place for (low, high), block in layers for place in range(low, high, block))
    return merged((place, place) for place in [*places, row.end])


def _slowest_ps(slices: Sequence[Slice], board: Board) -> int:
    """Return the time of a sample on the slowest engine of a board that gives it all its
    multipliers.
    """
    engines = board.build([work for part in slices for work in slice_works(part)], 0)
    return max(engine.sample_ps for engine in engines)


def _layers_on_chip(layers: Sequence[Layer], board: Board, storage: Storage) -> int:
    """Return the number of layers before those at the end that need off-chip memory; all layers if
    none do.
    """
    first = next(
        (layer.index + 1 for layer in reversed(layers) if not layer.operation.may_be_off_chip), 0
    )
    whole = [Slice(layer, 0, cut_channels(layer)) for layer in layers[first:]]
    weights = sum(stored_weight_bytes(part, part.channels, storage) for part in whole)
    biases = sum(layer.bias * layer.channels for layer in layers[first:])
    needed = weights + storage.bias_bytes(biases)
    fits = needed <= board.on_chip_memory_bytes
    return len(layers) if fits or not first else first


def _perfect_ps(row: Row, able: Sequence[float]) -> float:
    """Return the time in ps that no cut can beat: work evenly on all multipliers, on each side of
    the best wall.
    """
    before = row.work(row.wall)
    after = row.work(row.end) - before
    if not after:
        return before / sum(able)
    upto = list(itertools.accumulate(able))
    # The wall stands between two devices, at the place that serves the slower side best.
    return min(
        max(before / sum_before, after / (upto[-1] - sum_before)) for sum_before in upto[:-1]
    )


def _slices(layers: Sequence[Layer], row: Row, begin: int, end: int) -> tuple[Slice, ...]:
    first = row.first
    return tuple(
        Slice(layers[i], max(begin, first[i]) - first[i], min(end, first[i + 1]) - first[i])
        for i in range(row.layer(begin), row.layer(end - 1) + 1)
    )


def _too_small(network: Network, cluster: Cluster, devices: int) -> str:
    """Return a message that says why there are too few multipliers for the smallest engines."""
    boards = [cluster.board(device) for device in range(devices)]
    largest = max(boards, key=lambda board: board.multipliers)
    needed = [largest.fewest_multipliers(channel_works(layer)) for layer in network.layers]
    worst = max(range(len(needed)), key=needed.__getitem__)
    if needed[worst] > largest.multipliers:
        return (
            f"board {largest.name}: {largest.said()}: {network.layers[worst].name} of"
            f" {network.name} needs at least {needed[worst]}, {largest.smallest_engine}"
        )
    have = ", ".join(f"{board.name} {board.multipliers}" for board in dict.fromkeys(boards))
    works = [
        work.of_channels(cut_channels(layer))
        for layer in network.layers
        for work in channel_works(layer)
    ]
    return (
        f"`devices` = {devices}: {network.name} needs at least {largest.fewest_multipliers(works)}"
        f" multipliers, {largest.smallest_engine}, and no cut fits them on these boards: {have}"
        f" ({largest.said()})"
    )
