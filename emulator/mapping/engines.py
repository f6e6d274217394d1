"""Engines: how a device's multipliers are given to FP, EB and PG, and the cycles that each then takes for a row.

FPDeep, sections 5.3 to 5.5 and 6.3.3. An engine is built of tiles of K×K multipliers; a tile does one K×K convolution
of one input channel a cycle. A slice with S input and OC output channels has S·OC of them for each pixel, and its
engines take them in turn over a row: FP and PG S·OC·W_out, EB S·OC·W_in, where PG's large convolutions are cut into
K×K ones. So cycles are convolutions over tiles, rounded up at the end of a row, and the only loss is that "the number
of DSPs allocated to each layer is rounded to a multiple of K×K". A fully connected layer is a 1×1 convolution over as
many channels as it has inputs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ..cluster.board import Board, Cluster
from ..common.errors import InputError
from ..network.layers import Layer
from .slices import Cut, Mapping, Slice, cut_of


@dataclasses.dataclass(frozen=True)
class Engines:
    """One phase of one slice: its multipliers, and what a row takes."""

    multipliers: int
    rows: int
    row_cycles: int

    @property
    def sample_cycles(self) -> int:
        """Cycles of one sample."""
        return self.rows * self.row_cycles


@dataclasses.dataclass(frozen=True)
class SliceEngines:
    """The engines of one slice; a layer that takes images has no EB, since nobody needs their errors."""

    fp: Engines
    eb: Engines | None
    pg: Engines

    @property
    def built(self) -> tuple[Engines, ...]:
        """FP, EB where there is one, and PG."""
        return tuple(engine for engine in (self.fp, self.eb, self.pg) if engine is not None)

    @property
    def sample_cycles_in_turn(self) -> int:
        """Cycles of one sample where FP, EB and PG take turns."""
        return sum(engine.sample_cycles for engine in self.built)


@dataclasses.dataclass(frozen=True)
class Demand:
    """What an engine has to do: rows of a sample, K×K convolutions in a row, and the multipliers of a tile, K·K."""

    rows: int
    convolutions: int
    tile: int

    @property
    def work(self) -> int:
        """Multiplier-cycles of a sample."""
        return self.rows * self.convolutions * self.tile

    def of_channels(self, channels: int) -> Demand:
        """That of so many channels, if this is one's."""
        return Demand(self.rows, self.convolutions * channels, self.tile)

    def multipliers(self, cycles: int) -> int:
        """The fewest, in whole tiles, that do a sample in so many cycles, of which there is one a row at the least."""
        return -(-self.convolutions // (cycles // self.rows)) * self.tile

    def with_multipliers(self, multipliers: int) -> Engines:
        """The engine that has so many."""
        return Engines(multipliers, self.rows, -(-self.convolutions // (multipliers // self.tile)))


def channel_demands(layer: Layer) -> tuple[Demand, ...]:
    """FP, EB (unless it takes images) and PG of one of the channels along which the layer is cut."""
    _, in_rows, in_columns = layer.input
    _, out_rows, out_columns = layer.output
    tile = layer.kernel[0] * layer.kernel[1]
    across = layer.channels if cut_of(layer) is Cut.ICP else layer.input[0]
    if layer.is_fc:
        across, in_rows, in_columns, tile = across * in_rows * in_columns, 1, 1, 1
    outwards = Demand(out_rows, across * out_columns, tile)
    inwards = Demand(in_rows, across * in_columns, tile)
    return (outwards, inwards, outwards) if layer.needs_errors else (outwards, outwards)


def allocate(mapping: Mapping, device: int, board: Board) -> tuple[SliceEngines, ...]:
    """Give the board's multipliers to the engines of the device's slices so that the slowest is as fast as may be.

    Every engine gets the fewest tiles with which it is no slower than that; and where the mapping's slowest device is
    slower still, than that one, for nothing would be gained. Engines as slow as allowed get one step more while there
    are multipliers left. Devices of fully connected layers, which nothing waits for row by row, are not held back.

    Raises:
        InputError: the board has too few multipliers for one tile of each engine.
    """
    slices = mapping.devices[device]
    demands = [demand.of_channels(part.end - part.begin) for part in slices for demand in channel_demands(part.layer)]
    needed = sum(demand.tile for demand in demands)
    if needed > board.multipliers:
        raise InputError(
            f"board {board.name}: `dsp` = {board.dsp}, which gives engines {board.multipliers} multipliers:"
            f" device {device} needs at least {needed}, one tile of kernel size for each engine of"
            f" {', '.join(map(str, slices))}"
        )
    cycles = fewest_cycles(demands, board.multipliers)
    if mapping.balance and device not in mapping.fc_devices:
        cycles = max(cycles, mapping.balance.slowest_ps // board.period_ps)
    built = iter(_build(demands, board.multipliers, cycles))
    return tuple(
        SliceEngines(next(built), next(built) if part.layer.needs_errors else None, next(built)) for part in slices
    )


def engines_in_turn(part: Slice, board: Board) -> SliceEngines:
    """The engines of a slice that has its board to itself: FP, EB and PG take turns, each with all multipliers.

    Raises:
        InputError: the board has too few multipliers for one tile.
    """
    built = []
    for demand in channel_demands(part.layer):
        if demand.tile > board.multipliers:
            raise InputError(
                f"board {board.name}: `dsp` = {board.dsp}, which gives engines {board.multipliers} multipliers:"
                f" {part.layer.name} needs at least {demand.tile},"
                " one tile of kernel size"
            )
        whole = demand.of_channels(part.end - part.begin)
        tiles = min(board.multipliers // demand.tile, whole.convolutions)
        built.append(whole.with_multipliers(tiles * demand.tile))
    return SliceEngines(built[0], built[1] if part.layer.needs_errors else None, built[-1])


def fewest_cycles(demands: Sequence[Demand], dsp: int) -> int:
    """The cycles of a sample on the slowest of these engines, shared out best; a tile for each must fit."""
    low = max(max(demand.rows for demand in demands), -(-sum(demand.work for demand in demands) // dsp)) - 1
    high = max(demand.rows * demand.convolutions for demand in demands)
    while high - low > 1:
        middle = (low + high) // 2
        if sum(demand.multipliers(middle) for demand in demands) <= dsp:
            high = middle
        else:
            low = middle
    return high


def _build(demands: Sequence[Demand], dsp: int, cycles: int) -> list[Engines]:
    left = dsp - sum(demand.multipliers(cycles) for demand in demands)
    engines = []
    for demand in demands:
        engine = demand.with_multipliers(demand.multipliers(cycles))
        if engine.sample_cycles == cycles and engine.row_cycles > 1:
            more = demand.multipliers(cycles - 1) - engine.multipliers
            if more <= left:
                left -= more
                engine = demand.with_multipliers(engine.multipliers + more)
        engines.append(engine)
    return engines


def idle_share(mapping: Mapping, cluster: Cluster) -> float:
    """The part of their time that allocated multipliers stand idle, the mean over devices with convolutions.

    Compared are a device's multiply-accumulates of FP, EB and PG with what its allocated multipliers could do while
    the slowest engine of all takes a sample; links are left out (FPDeep, section 6.3.3, Fig. 15).
    """
    boards = [cluster.board(device) for device in range(len(mapping.devices))]
    engines = [_engines(allocate(mapping, device, board)) for device, board in enumerate(boards)]
    slowest_ps = max(
        e.sample_cycles * board.period_ps for held, board in zip(engines, boards, strict=True) for e in held
    )
    idle = []
    for device, (held, board) in enumerate(zip(engines, boards, strict=True)):
        if device not in mapping.fc_devices:
            able = sum(engine.multipliers for engine in held) * slowest_ps / board.period_ps
            idle.append(1 - sum(map(_macs, mapping.devices[device])) / able)
    return sum(idle) / len(idle)


def _engines(held: Sequence[SliceEngines]) -> list[Engines]:
    return [engine for both in held for engine in (both.fp, both.eb, both.pg) if engine]


def _macs(part: Slice) -> int:
    return part.macs * len(channel_demands(part.layer))
