"""The partition: which device holds which channels of which layers (FPDeep, sections 3.2, 3.4, 4.1 and 4.2).

All layers' channels stand in one row, which is cut at channel boundaries into consecutive pieces, one for each device;
so a device may hold slices of several layers, and a layer may span many devices. `coarse.py` cuts between layers,
`fine.py` between channels, from scratch and exactly, so that the coarse phase serves for comparison.

Fully connected layers at the network's end whose parameters and gradients do not fit into a board's on-chip memory get
the last devices of the chain to themselves, with off-chip memory ("off-chip only for the FC layer": sections 6.3.1
and 7), as many as it takes for none of them to be the slowest.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from ..cluster.board import Board, Cluster
from ..common.errors import InputError
from ..network.layers import Layer, Network
from .coarse import coarse_shares
from .engines import channel_demands
from .fine import capacity, fastest, shares, spread
from .row import Row
from .slices import Balance, Cut, Mapping, Slice, cut_channels, cut_of, imbalance

__all__ = ["Balance", "Cut", "Mapping", "Slice", "cut_channels", "cut_of", "partition"]

_BYTES_OF_A_PARAMETER = 2 * 4
"""Itself in LPRAM and its gradient in LGB."""


def partition(network: Network, cluster: Cluster, devices: int) -> Mapping:
    """Cut `network` over `devices` boards so that the slowest engine of all is as fast as can be.

    Raises:
        InputError: zero devices, more than there are channels to hand out, or too few multipliers.
    """
    counts = [cut_channels(layer) for layer in network.layers]
    if not 1 <= devices <= sum(counts):
        raise InputError(
            f"`devices` = {devices}: must be 1 to {sum(counts)}, for {network.name} has {sum(counts)} channels to cut"
            " and each device needs one"
        )
    boards = [cluster.board(device) for device in range(devices)]
    convolutions = _before_fc(network.layers, boards[-1]) if devices > 1 else len(network.layers)
    row = Row(counts, [channel_demands(layer) for layer in network.layers], convolutions)
    slowest_ps = fastest(row, boards)
    if slowest_ps is None:
        raise InputError(_too_small(network, cluster, devices))
    ends = [0, *spread(row, boards, slowest_ps)]
    held = tuple(_slices(network.layers, row, begin, end) for begin, end in itertools.pairwise(ends))
    fc_from = ends.index(row.wall)
    work = [row.work(row.first[i + 1]) - row.work(row.first[i]) for i in range(convolutions)]
    able = [capacity(board) for board in boards]
    perfect_ps = _perfect_ps(row, able)
    before, after = imbalance(coarse_shares(work, able[:fc_from])), imbalance(shares(row, boards, ends[1:]))
    balance = Balance(slowest_ps, perfect_ps, before, after)
    return Mapping(network, held, range(fc_from, devices), balance)


def _before_fc(layers: Sequence[Layer], board: Board) -> int:
    """The number of layers before the fully connected ones that need off-chip memory; all layers if none do."""
    convolutions = next((layer.index + 1 for layer in reversed(layers) if not layer.is_fc), 0)
    parameters = sum(math.prod(layer.weight_shape) + layer.bias * layer.channels for layer in layers[convolutions:])
    fits = parameters * _BYTES_OF_A_PARAMETER <= board.on_chip_memory_bytes
    return len(layers) if fits or not convolutions else convolutions


def _perfect_ps(row: Row, able: Sequence[float]) -> float:
    """What no cut can beat: work evenly on all multipliers; on each side of the wall, where that is best."""
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
    """Why a tile for each engine is too much."""
    needed = [sum(demand.tile for demand in channel_demands(layer)) for layer in network.layers]
    boards = [cluster.board(device) for device in range(devices)]
    largest = max(boards, key=lambda board: board.multipliers)
    worst = max(range(len(needed)), key=needed.__getitem__)
    if needed[worst] > largest.multipliers:
        return (
            f"board {largest.name}: `dsp` = {largest.dsp}, which gives engines {largest.multipliers} multipliers:"
            f" {network.layers[worst].name} of {network.name} needs at least {needed[worst]}, one tile of kernel size"
            " for each engine"
        )
    have = ", ".join(f"{board.name} {board.multipliers}" for board in dict.fromkeys(boards))
    return (
        f"`devices` = {devices}: {network.name} needs at least {sum(needed)} multipliers, one tile of kernel size for"
        f" each engine, and no cut fits them on these boards: {have} (`dsp` by `dsp_share`)"
    )
