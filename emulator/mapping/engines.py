"""Engines: the work of FP, EB and PG of a slice, and how a board's multipliers are shared among
them.

FPDeep, sections 5.3 to 5.5 and 6.3.3. A slice with S input and OC output channels has S·OC
convolutions for each pixel, and its engines take them in turn over a row: FP and PG S·OC·W_out, EB
S·OC·W_in, where PG's large convolutions are cut into K×K ones. The board (`cluster/`) determines
how long that takes on a given number of multipliers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from ..cluster import Board, Cluster, Engine, Work
from ..common import InputError
from ..network import Layer
from .slices import Cut, Mapping, Slice, cut_of


@dataclasses.dataclass(frozen=True)
class SliceEngines:
    """The engines of one slice; a layer that takes images has no EB, one without weights no PG."""

    fp: Engine
    eb: Engine | None
    pg: Engine | None

    @property
    def built(self) -> tuple[Engine, ...]:
        """FP, EB where there is one, and PG."""
        return tuple(engine for engine in (self.fp, self.eb, self.pg) if engine is not None)

    @property
    def multipliers(self) -> tuple[int, int, int]:
        """Multipliers of FP, EB and PG."""
        return (
            self.fp.multipliers,
            self.eb.multipliers if self.eb else 0,
            self.pg.multipliers if self.pg else 0,
        )

    @property
    def sample_ps_in_turn(self) -> int:
        """Time of one sample if FP, EB and PG take turns."""
        return sum(engine.sample_ps for engine in self.built)


def channel_works(layer: Layer) -> tuple[Work, ...]:
    """Return the work of FP, EB and PG, of those that it has, of one of the channels along which a
    layer is cut.
    """
    view, by_outputs = layer.engine_view, cut_of(layer) is Cut.OCP
    operation = layer.operation
    inputs, outputs = (operation.taps(layer.input), 1) if by_outputs else (1, layer.channels)
    pairs = outputs, view.tile, by_outputs, operation.one_memory
    outwards = Work(
        view.out_rows, view.out_columns, view.values * inputs, *pairs, classes=layer.classes
    )
    gradients = (dataclasses.replace(outwards, phase=2),) if layer.has_pg else ()
    if not layer.has_eb:
        return outwards, *gradients
    back = operation.eb_taps(layer.input, with_inputs=layer.needs_errors) if by_outputs else 1
    return (
        outwards,
        Work(layer.eb_rows, view.in_columns, view.values * back, *pairs, 1, layer.classes),
        *gradients,
    )


def slice_works(part: Slice) -> tuple[Work, ...]:
    """Return the work of FP, EB and PG, of those that it has, of a slice."""
    return tuple(work.of_channels(part.channels) for work in channel_works(part.layer))


def multiplier_counts(part: Slice, engines: SliceEngines) -> tuple[int, ...]:
    """Return the multipliers of a slice's engines in the order of the board's classes."""
    return *(0, 0, 0) * part.layer.classes, *engines.multipliers


def allocate_all(mapping: Mapping, cluster: Cluster) -> tuple[tuple[SliceEngines, ...], ...]:
    """Allocate the engines of all devices of a chain; those with the same work on the same board
    have the same.

    Raises:
        InputError: a board has too few multipliers for one tile of each engine.
    """
    known: dict[object, tuple[SliceEngines, ...]] = {}
    engines = []
    for device, slices in enumerate(mapping.devices):
        board = cluster.board(device)
        works = tuple((part.layer.index, part.channels) for part in slices)
        # Of the device itself only this matters to `allocate`: whether its engines are held back.
        key = board, works, device in mapping.off_chip_devices
        if key not in known:
            known[key] = allocate(mapping, device, board)
        engines.append(known[key])
    return tuple(engines)


def allocate(mapping: Mapping, device: int, board: Board) -> tuple[SliceEngines, ...]:
    """Share the board's multipliers among the engines of a device so that the slowest is as fast as
    possible.

    Engines are made no faster than the mapping's slowest device, because nothing would be gained.
    Devices of off-chip layers, whose rows do not feed further rows, are not held back.

    Raises:
        InputError: the board has too few multipliers for one tile of each engine.
    """
    slices = mapping.devices[device]
    works = [work for part in slices for work in slice_works(part)]
    needed = board.fewest_multipliers(works)
    if needed > board.multipliers:
        raise InputError(
            f"board {board.name}: {board.said()}: device {device} needs at least {needed},"
            f" {board.smallest_engine}, for {', '.join(map(str, slices))}"
        )
    is_held_back = device not in mapping.off_chip_devices
    built = iter(
        board.build(works, mapping.balance.slowest_ps if mapping.balance and is_held_back else 0)
    )
    return tuple(_of_slice(part, built) for part in slices)


def _of_slice(part: Slice, built: Iterator[Engine]) -> SliceEngines:
    """Return a slice's engines, the next ones that are built."""
    fp, eb = next(built), next(built) if part.layer.has_eb else None
    return SliceEngines(fp, eb, next(built) if part.layer.has_pg else None)


def engines_in_turn(part: Slice, board: Board) -> SliceEngines:
    """Return the engines of a slice that has its board to itself: FP, EB and PG take turns, each on
    all multipliers.

    Rows of a recurrent layer's FP and EB wait for the activations of the row before.

    Raises:
        InputError: the board has too few multipliers for one tile.
    """
    built = []
    for work in slice_works(part):
        needed = board.fewest_multipliers([work])
        if needed > board.multipliers:
            raise InputError(
                f"board {board.name}: {board.said()}: {part.layer.name} needs at least {needed},"
                f" {board.smallest_engine}"
            )
        built.append(board.build_alone(work))
    if part.layer.operation.recurs:
        fp, eb, pg = built
        return SliceEngines(fp.waiting(board.activation_ps), eb.waiting(board.activation_ps), pg)
    return _of_slice(part, iter(built))


def idle_share(mapping: Mapping, cluster: Cluster) -> float:
    """Return the share of time that allocated multipliers are idle, averaged over devices with
    convolutions.

    A device's multiply-accumulates of FP, EB and PG are compared with what its allocated
    multipliers could do in the slowest engine's time for a sample; links are left out (FPDeep,
    section 6.3.3, Fig. 15).
    """
    boards = [cluster.board(device) for device in range(len(mapping.devices))]
    engines = [_built(held) for held in allocate_all(mapping, cluster)]
    slowest_ps = max(engine.sample_ps for held in engines for engine in held)
    idle = []
    for device, (held, board) in enumerate(zip(engines, boards, strict=True)):
        if device not in mapping.off_chip_devices:
            able = sum(engine.multipliers for engine in held) * slowest_ps / board.period_ps
            idle.append(1 - sum(map(_macs, mapping.devices[device])) / able)
    return sum(idle) / len(idle)


def _built(held: Sequence[SliceEngines]) -> list[Engine]:
    return [engine for engines in held for engine in engines.built]


def _macs(part: Slice) -> int:
    return sum(work.macs for work in slice_works(part))
