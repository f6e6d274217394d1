"""The partition: which device holds which channels of which layers (FPDeep, sections 3.2, 3.4, 4.1 and 4.2).

All layers' channels form one row, which is cut at channel boundaries into consecutive pieces, one for each device; so a
device may hold slices of several layers, and a layer may span many devices. `coarse.py` cuts between layers, `fine.py`
between channels, from scratch and exactly; the coarse phase is for comparison.

Fully connected layers at the network's end whose parameters and gradients do not fit into a board's on-chip memory get
the last devices of the chain to themselves, with off-chip memory ("off-chip only for the FC layer": sections 6.3.1
and 7), just as many devices as keep them from being the slowest.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

from ..cluster import Board, Cluster
from ..common import InputError, plural
from ..network import Layer, Network
from ..number import Storage
from .balancing import weight_lines
from .coarse import coarse_shares
from .engines import channel_works, slice_works
from .fine import Servers, fastest, is_enough, shares, spread
from .row import Boundaries, PieceMemory, Row
from .slices import Balance, Mapping, Slice, cut_channels, imbalance

_LATER = 1000
"""A cut for memory ports that turns out to need longer gets a thousandth more time."""


def partition(network: Network, cluster: Cluster, devices: int) -> Mapping:
    """Cut `network` over `devices` boards so that the slowest engine or link of all is as fast as possible.

    Memory is left out, but for fully connected layers that do not fit: they are kept apart (see above).

    Raises:
        InputError: zero devices, more devices than channels, or too few multipliers.
    """
    boards = _boards(network, cluster, devices)
    on_chip = _layers_on_chip(network.layers, boards[-1], cluster.storage) if devices > 1 else len(network.layers)
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
    """Cut `network` over `devices` boards so that the slowest engine, link or memory port is as fast as possible.

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
    """Return a mapping that is not from here with its evenness, so that its engines are as fast as its slowest."""
    layers, devices = mapping.network.layers, len(mapping.devices)
    boards = [cluster.board(device) for device in range(devices)]
    servers = _servers(mapping.network, cluster, boards, len(layers))
    lasts = (slices[-1] for slices in mapping.devices)
    ends = [servers.row.first[part.layer.index] + part.end for part in lasts]
    return dataclasses.replace(mapping, balance=_balance(mapping.devices, servers.row, boards, ends, len(layers)))


def can_take(network: Network, cluster: Cluster, devices: int, time_ps: int) -> bool:
    """Return whether some cut over `devices` boards takes a sample in `time_ps` on each engine and link.

    Memory is left out. False where no cut fits the boards.

    Raises:
        InputError: zero devices, or more devices than channels.
    """
    return is_enough(_servers(network, cluster, _boards(network, cluster, devices), len(network.layers)), time_ps)


def _boards(network: Network, cluster: Cluster, devices: int) -> list[Board]:
    channels = sum(map(cut_channels, network.layers))
    if not 1 <= devices <= channels:
        raise InputError(
            f"`devices` = {devices}: must be 1 to {channels}: {network.name} has {plural(channels, 'channel')} to cut,"
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
    """Return the evenness of slices whose pieces of the row have these ends; `on_chip` layers stand before the wall."""
    off_chip_from = [0, *ends].index(row.wall)
    work = [row.work(row.first[i + 1]) - row.work(row.first[i]) for i in range(on_chip)]
    able = [board.capacity for board in boards]
    before, after = imbalance(coarse_shares(work, able[:off_chip_from])), imbalance(shares(row, boards, ends))
    slowest_ps = max(_slowest_ps(slices, board) for slices, board in zip(held, boards, strict=True))
    return Balance(slowest_ps, _perfect_ps(row, able), before, after, server_ps)


def _servers(
    network: Network, cluster: Cluster, boards: Sequence[Board], on_chip: int, memory: PieceMemory | None = None
) -> Servers:
    """Return the boards and links between them, and the row that they take, with a wall after `on_chip` layers."""
    layers = network.layers
    row = Row([cut_channels(layer) for layer in layers], [channel_works(layer) for layer in layers], on_chip, memory)
    links = [cluster.link_at(link) for link in range(len(boards) - 1)]
    return Servers(row, boards, links, Boundaries(layers, cluster.link.share, cluster.precision))


def _slowest_ps(slices: Sequence[Slice], board: Board) -> int:
    """Return the time of a sample on the slowest engine of a board that gives it all its multipliers."""
    engines = board.build([work for part in slices for work in slice_works(part)], 0)
    return max(engine.sample_ps for engine in engines)


def _layers_on_chip(layers: Sequence[Layer], board: Board, storage: Storage) -> int:
    """Return the number of layers before those at the end that need off-chip memory; all layers if none do."""
    first = next((layer.index + 1 for layer in reversed(layers) if not layer.operation.may_be_off_chip), 0)
    whole = [Slice(layer, 0, cut_channels(layer)) for layer in layers[first:]]
    weights = sum(storage.weight_bytes(weight_lines(part, part.channels)) for part in whole)
    biases = sum(layer.bias * layer.channels for layer in layers[first:])
    needed = weights + storage.bias_arrays * storage.biases.bytes_of(biases)
    fits = needed <= board.on_chip_memory_bytes
    return len(layers) if fits or not first else first


def _perfect_ps(row: Row, able: Sequence[float]) -> float:
    """Return the time in ps that no cut can beat: work evenly on all multipliers, on each side of the best wall."""
    before = row.work(row.wall)
    after = row.work(row.end) - before
    if not after:
        return before / sum(able)
    upto = list(itertools.accumulate(able))
    return min(max(before / sum_before, after / (upto[-1] - sum_before)) for sum_before in upto[:-1])


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
            f"board {largest.name}: {largest.said()}: {network.layers[worst].name} of {network.name} needs at least"
            f" {needed[worst]}, {largest.smallest_engine}"
        )
    have = ", ".join(f"{board.name} {board.multipliers}" for board in dict.fromkeys(boards))
    works = [work.of_channels(cut_channels(layer)) for layer in network.layers for work in channel_works(layer)]
    return (
        f"`devices` = {devices}: {network.name} needs at least {largest.fewest_multipliers(works)} multipliers,"
        f" {largest.smallest_engine}, and no cut fits them on these boards: {have} ({largest.said()})"
    )
