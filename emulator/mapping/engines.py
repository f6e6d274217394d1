"""Engines: how a device's multipliers are given to FP, EB and PG, and the cycles that each then takes for a row.

FPDeep, sections 5.3 to 5.5. An engine is built of tiles of K×K multipliers. FP of a slice with S input channels has P
convolution engines of S tiles, and makes a pixel of all OC outputs in ceil(OC/P) cycles; EB has S engines of P tiles;
PG's large convolutions are cut into K×K ones, so its cycles are its multiply-accumulates over its multipliers. A fully
connected layer is a 1×1 convolution over as many channels as it has inputs. Where a slice has more channels than its
engine has tiles, the tiles take turns.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Callable

from ..boards import Board
from ..errors import InputError
from .partition import Mapping, Slice


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
    def sample_cycles_in_turn(self) -> int:
        """Cycles of one sample where FP, EB and PG take turns."""
        return sum(engine.sample_cycles for engine in (self.fp, self.eb, self.pg) if engine is not None)


@dataclasses.dataclass(frozen=True)
class _Demand:
    """What one engine has to do: rows, the size of a tile, and the cycles of a row with so many tiles."""

    rows: int
    tile: int
    row_cycles: Callable[[int], int]
    useful_tiles: int
    macs: int


def allocate(mapping: Mapping, device: int, board: Board) -> tuple[SliceEngines, ...]:
    """Give the board's multipliers to the engines of the device's slices so that the slowest is as fast as may be.

    Every engine gets its share by multiply-accumulates, in whole tiles, one at the least; what is left over goes to the
    slowest engine, as long as that makes it faster.

    Raises:
        InputError: the board has too few multipliers for one tile of each engine.
    """
    slices = mapping.devices[device]
    demands = [demand for part in slices for demand in _demands(part)]
    needed = sum(demand.tile for demand in demands)
    if needed > board.dsp:
        raise InputError(
            f"board {board.name}: `dsp` = {board.dsp}: device {device} needs at least {needed},"
            f" one tile of kernel size for each engine of {', '.join(map(str, slices))}"
        )
    tiles = _share(demands, board.dsp)
    built = [
        Engines(count * demand.tile, demand.rows, demand.row_cycles(count))
        for demand, count in zip(demands, tiles, strict=True)
    ]
    engines = []
    for part in slices:
        fp = built.pop(0)
        eb = built.pop(0) if part.layer.needs_errors else None
        engines.append(SliceEngines(fp, eb, built.pop(0)))
    return tuple(engines)


def engines_in_turn(part: Slice, board: Board) -> SliceEngines:
    """The engines of a slice that has its board to itself: FP, EB and PG take turns, each with all multipliers.

    Raises:
        InputError: the board has too few multipliers for one tile.
    """
    built = []
    for demand in _demands(part):
        if demand.tile > board.dsp:
            raise InputError(
                f"board {board.name}: `dsp` = {board.dsp}: {part.layer.name} needs at least {demand.tile},"
                " one tile of kernel size"
            )
        tiles = min(board.dsp // demand.tile, demand.useful_tiles)
        built.append(Engines(tiles * demand.tile, demand.rows, demand.row_cycles(tiles)))
    return SliceEngines(built[0], built[1] if part.layer.needs_errors else None, built[-1])


def _demands(part: Slice) -> list[_Demand]:
    layer = part.layer
    ins, outs = len(part.in_channels), len(part.out_channels)
    _, in_rows, in_columns = layer.input
    _, out_rows, out_columns = layer.output
    tile = layer.kernel[0] * layer.kernel[1]
    if layer.is_fc:
        ins, in_rows, in_columns, tile = ins * in_rows * in_columns, 1, 1, 1
    pairs = ins * outs

    def convolve(columns: int) -> Callable[[int], int]:
        return lambda tiles: columns * _pixel_cycles(ins, outs, tiles)

    fp = _Demand(out_rows, tile, convolve(out_columns), pairs, part.macs)
    eb = _Demand(in_rows, tile, convolve(in_columns), pairs, part.macs)
    pg = _Demand(out_rows, tile, lambda tiles: -(-pairs * out_columns // tiles), pairs * out_columns, part.macs)
    return [fp, eb, pg] if layer.needs_errors else [fp, pg]


def _pixel_cycles(ins: int, outs: int, tiles: int) -> int:
    """ceil(OC / P) with P = tiles // S engines; where tiles are fewer than input channels, they take turns."""
    if tiles >= ins:
        return -(-outs // (tiles // ins))
    return outs * -(-ins // tiles)


def _share(demands: list[_Demand], dsp: int) -> list[int]:
    """Tiles for each engine."""
    macs = sum(demand.macs for demand in demands)
    spare = dsp - sum(demand.tile for demand in demands)
    tiles = [min(1 + spare * d.macs // macs // d.tile, d.useful_tiles) for d in demands]
    left = dsp - sum(count * demand.tile for count, demand in zip(tiles, demands, strict=True))
    queue = [(-d.rows * d.row_cycles(tiles[i]), i) for i, d in enumerate(demands)]
    heapq.heapify(queue)
    while queue:
        _, slowest = heapq.heappop(queue)
        demand, have = demands[slowest], tiles[slowest]
        more = _tiles_that_help(demand, have, have + left // demand.tile)
        if more is None:
            break
        left -= (more - have) * demand.tile
        tiles[slowest] = more
        heapq.heappush(queue, (-demand.rows * demand.row_cycles(more), slowest))
    return tiles


def _tiles_that_help(demand: _Demand, have: int, most: int) -> int | None:
    """The fewest tiles, up to `most`, that make a row faster; row_cycles falls monotonically, so bisection finds it."""
    most = min(most, demand.useful_tiles)
    now = demand.row_cycles(have)
    if most <= have or demand.row_cycles(most) >= now:
        return None
    low, high = have, most
    while high - low > 1:
        middle = (low + high) // 2
        if demand.row_cycles(middle) < now:
            high = middle
        else:
            low = middle
    return high
