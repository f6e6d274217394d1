"""The partition: which device holds which channels of which layers (FPDeep, sections 3.2, 3.4, 4.1 and 4.2).

All layers' channels form one row, which is cut at channel boundaries into consecutive pieces, one for each device; so a
device may hold slices of several layers, and a layer may span many devices. `coarse.py` cuts between layers, `fine.py`
between channels, from scratch and exactly; the coarse phase is for comparison.

Fully connected layers at the network's end whose parameters and gradients do not fit into a board's on-chip memory get
the last devices of the chain to themselves, with off-chip memory ("off-chip only for the FC layer": sections 6.3.1
and 7), just as many devices as keep them from being the slowest.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ..cluster import Board, Cluster
from ..common import InputError
from ..network import Layer, Network
from .coarse import coarse_shares
from .engines import channel_works
from .fine import fastest, shares, spread
from .row import Row
from .slices import Balance, Mapping, Slice, cut_channels, imbalance

_BYTES_OF_A_PARAMETER = 2 * 4
"""The parameter in LPRAM and its gradient in LGB."""


def partition(network: Network, cluster: Cluster, devices: int) -> Mapping:
    """Cut `network` over `devices` boards so that the slowest engine of all is as fast as possible.

    Raises:
        InputError: zero devices, more devices than channels, or too few multipliers.
    """
    counts = [cut_channels(layer) for layer in network.layers]
    if not 1 <= devices <= sum(counts):
        raise InputError(
            f"`devices` = {devices}: must be 1 to {sum(counts)}: {network.name} has {sum(counts)} channels to cut,"
            " and each device needs at least one"
        )
    boards = [cluster.board(device) for device in range(devices)]
    on_chip = _layers_on_chip(network.layers, boards[-1]) if devices > 1 else len(network.layers)
    row = Row(counts, [channel_works(layer) for layer in network.layers], on_chip)
    slowest_ps = fastest(row, boards)
    if slowest_ps is None:
        raise InputError(_too_small(network, cluster, devices))
    ends = [0, *spread(row, boards, slowest_ps)]
    held = tuple(_slices(network.layers, row, begin, end) for begin, end in itertools.pairwise(ends))
    off_chip_from = ends.index(row.wall)
    work = [row.work(row.first[i + 1]) - row.work(row.first[i]) for i in range(on_chip)]
    able = [board.capacity for board in boards]
    before, after = imbalance(coarse_shares(work, able[:off_chip_from])), imbalance(shares(row, boards, ends[1:]))
    balance = Balance(slowest_ps, _perfect_ps(row, able), before, after)
    return Mapping(network, held, range(off_chip_from, devices), balance)


def _layers_on_chip(layers: Sequence[Layer], board: Board) -> int:
    """Return the number of layers before those at the end that need off-chip memory; all layers if none do."""
    first = next((layer.index + 1 for layer in reversed(layers) if not layer.operation.may_be_off_chip), 0)
    parameters = sum(layer.weights + layer.bias * layer.channels for layer in layers[first:])
    fits = parameters * _BYTES_OF_A_PARAMETER <= board.on_chip_memory_bytes
    return len(layers) if fits or not first else first


def _perfect_ps(row: Row, able: Sequence[float]) -> float:
    """Return the time in ps that no cut can beat: work evenly on all multipliers, on each side of the best wall."""
    before = row.work(row.wall)
    after = row.work(row.end) - before
    if not after:
        return before / sum(able)
    upto = list(itertools.accumulate(able))
    return min(max(before / each, after / (upto[-1] - each)) for each in upto[:-1])


def _slices(layers: Sequence[Layer], row: Row, begin: int, end: int) -> tuple[Slice, ...]:
    first = row.first
    return tuple(
        Slice(layers[i], max(begin, first[i]) - first[i], min(end, first[i + 1]) - first[i])
        for i in range(row.layer(begin), row.layer(end - 1) + 1)
    )


def _too_small(network: Network, cluster: Cluster, devices: int) -> str:
    """Return a message that says why there are too few multipliers for a tile for each engine."""
    boards = [cluster.board(device) for device in range(devices)]
    largest = max(boards, key=lambda board: board.multipliers)
    needed = [largest.fewest_multipliers(channel_works(layer)) for layer in network.layers]
    worst = max(range(len(needed)), key=needed.__getitem__)
    if needed[worst] > largest.multipliers:
        return (
            f"board {largest.name}: {largest.said()}: {network.layers[worst].name} of {network.name} needs at least"
            f" {needed[worst]}, one tile of kernel size for each engine"
        )
    have = ", ".join(f"{board.name} {board.multipliers}" for board in dict.fromkeys(boards))
    return (
        f"`devices` = {devices}: {network.name} needs at least {sum(needed)} multipliers, one tile of kernel size for"
        f" each engine, and no cut fits them on these boards: {have} ({largest.said()})"
    )
