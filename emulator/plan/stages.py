"""Stages on boards that take actions as a whole: what they cost, and how the chain is cut into
them.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from ...kernels.number import FP32, NumberFormat
from ..cluster import Board, Cluster, Link
from ..common import InputError
from ..explore import Demand, Pieces, filled_cut, fits_at_all
from ..explore import partition as find_partition
from ..mapping import COPIES, Mapping, Stream, partition_layers
from ..network import Network
from ..profile import (
    BoardStage,
    BoardStages,
    DataBytes,
    DoesNotFit,
    MeasuredBoardStages,
    Profile,
    board_stage,
    measured_stage,
    streams_bytes,
)
from ..schedule import (
    EpochShape,
    Fold,
    Kind,
    Machine,
    ScheduleKind,
    StageCosts,
    Staleness,
    kept_micro_batches,
    weight_copies,
)
from ..timing import FeatureBytes
from .chain import board_number

if TYPE_CHECKING:
    from ..config import Config

_UNLIMITED = 1 << 62


@dataclasses.dataclass(frozen=True)
class PlannedStages:
    """The stages of a mapping on boards that take actions as a whole.

    By stage, `kept_samples` are the most samples whose features are kept, `weight_copies` the most
    versions of the weights, and `redone` the most micro-batches whose recomputed features are there
    at a time: several where W is apart from B. Micro-batches are of `samples` samples, and a
    parameter takes `parameter_copies` arrays, of which replicas may share some out, and the weights
    themselves in `weight_shares`. The features of `recomputed` layers, by index, are computed again
    in B, or `apart` from it in R. With a `profile`, times are those that it has of the layers.
    """

    mapping: Mapping
    boards: tuple[Board, ...]
    machine: Machine
    fold: Fold
    kept_samples: tuple[int, ...]
    weight_copies: tuple[int, ...]
    samples: int
    number: NumberFormat = FP32
    parameter_copies: Fraction | int = COPIES
    weight_shares: int = 1
    recomputed: frozenset[int] = frozenset()
    profile: Profile | None = None
    dot: int = 0
    """Products of a block that is summed exactly."""
    redone: tuple[int, ...] = ()
    apart: bool = False

    def message_bytes(self, streams: Iterable[Stream], samples: int) -> int:
        """Return the bytes of a message with `samples` samples of some streams."""
        return samples * streams_bytes(streams, self.number)

    def costs(self, stage: int, samples: int) -> StageCosts:
        """Return the costs of a stage for a micro-batch of `samples` samples, without transfers.

        Raises:
            InputError: the board's memory is too small, with stage, bytes and capacity.
        """
        return self.stage(stage, samples).costs

    def layer_times(self, stage: int, samples: int) -> tuple[tuple[int, int, int], ...]:
        """Return the times in ps of FP, EB and PG of each of a stage's layers; see `costs`."""
        return tuple(layer.times_ps for layer in self.stage(stage, samples).layers)

    def feature_bytes(self, stage: int, samples: int) -> FeatureBytes:
        """Return the bytes of features of a micro-batch of `samples` samples."""
        on_board = self.stage(stage, samples)
        kept, again = on_board.costs.feature_bytes, on_board.recomputed_bytes
        return FeatureBytes(kept, again, kept + again, on_board.whole_bytes)

    def memory_bytes(self, stage: int) -> tuple[DataBytes, int]:
        """Return a stage's bytes of weights, gradients and features on chip, and all its bytes off
        chip.
        """
        on_board = self.stage(stage, self.samples)
        return on_board.data_on_chip, on_board.off_chip_bytes

    def port_bytes(self, stage: int, samples: int) -> int:
        """Return the bytes that such a micro-batch moves over the memory port."""
        return self.stage(stage, samples).moved_bytes

    def stage(self, stage: int, samples: int) -> BoardStage:
        """Return a stage on its board, for a micro-batch of `samples` samples; see `costs`."""
        key = stage, samples
        if key not in self._found:
            planned = board_stage(
                self.mapping.devices[stage],
                self.boards[stage],
                samples,
                self.kept_samples[stage],
                weight_copies=self.weight_copies[stage],
                stage=stage,
                number=self.number,
                copies=self.parameter_copies,
                shares=self.weight_shares,
                recomputed=self.recomputed,
                redone=self.redone[stage] if self.redone else 1,
                dot=self.dot,
                recompute_apart=self.apart,
            )
            if self.profile is not None:
                times = self.profile.by_layer(self.boards[stage].name, samples)
                planned = measured_stage(planned, times, self.recomputed, apart=self.apart)
            self._found[key] = planned
        return self._found[key]

    @functools.cached_property
    def _found(self) -> dict[tuple[int, int], BoardStage]:
        return {}


def stages_on_boards(
    network: Network,
    cluster: Cluster,
    config: Config,
    machine: Machine,
    epoch: EpochShape,
    profile: Profile | None = None,
    by_hand: Mapping | None = None,
    recomputed: frozenset[int] = frozenset(),
) -> PlannedStages:
    """Cut a network into stages on boards that take actions as a whole, so that the slowest is as
    fast as possible.

    Args:
        network: what to cut.
        cluster: the boards, one for each stage (`folded`).
        config: says whether stages are of whole layers or of channels, and whether memory is
            modelled.
        machine: how boards and links work.
        epoch: what the schedule is made for.
        profile: times of all layers on all boards, which take the place of the boards' own.
        by_hand: the cut, if it was made by hand.
        recomputed: the layers, by index, whose features B, or R, computes again.

    Raises:
        InputError: there are more stages than layers or channels, or a board's memory is too small.
    """
    fold = Fold(epoch.devices, epoch.chunks, config.schedule.in_v)
    count = fold.count
    precision = config.precision
    most = len(BoardStages(network, [cluster.board(0)], 1, precision=precision).places) - 1
    if count > most:
        raise InputError(
            f"`devices` = {count}: must be 1 to {most}: {network.name} is cut at no more places"
        )
    boards = [cluster.board(stage) for stage in range(count)]
    if config.memory != "modelled":
        # Then nothing leaves the chip, and memory ports take no time.
        boards = [dataclasses.replace(board, on_chip_memory_bytes=_UNLIMITED) for board in boards]  # type: ignore[type-var]  # all kinds are dataclasses
    size = min(epoch.micro_batch, epoch.batch)
    kept, redone, copies = _kept(config.schedule, epoch, fold, machine.frees_features)
    room, shares = cluster.parameter_room, cluster.sharing.weights
    values = size, board_number(config), room, shares, recomputed
    if profile is None:
        pieces = BoardStages(network, boards, *values, precision=precision, redone=redone)
    else:
        pieces = MeasuredBoardStages(
            *(network, boards, *values), profile=profile, precision=precision, redone=redone
        )

    if by_hand is not None:
        mapping = by_hand
    elif config.stages == "layers":
        mapping = _between_layers(network, cluster, pieces, kept, copies)
    else:
        links = [cluster.link_at(link) for link in range(count - 1)]
        mapping = _within_layers(network, pieces, links, Demand(kept, weight_copies=copies))
    kept_samples = tuple(size * count_kept for count_kept in kept)
    planned = PlannedStages(
        *(mapping, tuple(boards), machine, fold, kept_samples, copies, *values),
        profile=profile,
        dot=precision.dot,
        redone=redone,
        apart=config.schedule.recomputes,
    )
    # What does not fit raises here, ahead of the run.
    for stage in range(count):
        planned.costs(stage, size)
    return planned


def _between_layers(
    network: Network,
    cluster: Cluster,
    pieces: BoardStages,
    kept: Sequence[int],
    copies: Sequence[int],
) -> Mapping:
    """Return the cut between layers whose slowest stage is as fast as possible."""

    def cost(stage: int, begin: int, end: int) -> float:
        places = pieces.starts[begin], pieces.starts[end]
        try:
            return pieces.costs(*places, stage, kept[stage], weight_copies=copies[stage]).work_ps
        except DoesNotFit:
            return math.inf

    return partition_layers(network, cluster, pieces.devices, cost)


def _within_layers(
    network: Network, stages: BoardStages, links: Sequence[Link], demand: Demand
) -> Mapping:
    """Return the cut by channels that an exploration finds (BaPipe, section III-B).

    Raises:
        InputError: a board's memory is too small.
    """
    if stages.devices <= len(network.layers):
        ends = find_partition(stages, links, demand).cut.ends
    else:
        pieces = Pieces(stages, links, demand)
        enough = fits_at_all(pieces, stages.places, _UNLIMITED)
        if enough is None:  # the message says which stage of an even cut does not fit
            step = len(stages.places) / stages.devices
            pieces.costs(
                [stages.places[round(step * number) - 1] for number in range(1, stages.devices + 1)]
            )
        assert enough is not None
        ends = filled_cut(pieces, stages.places, enough).ends
    return Mapping(
        network, tuple(stages.slices(*place) for place in itertools.pairwise((0, *ends)))
    )


def _kept(
    kind: ScheduleKind, epoch: EpochShape, fold: Fold, last: Kind
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return the most micro-batches whose features each stage keeps, the most whose recomputed
    features are there at a time, and the most versions of its weights.

    Args:
        kind: the kind of schedule.
        epoch: what it is made for. One mini-batch shows all where the pipeline drains, else as many
            as fill it twice.
        fold: how the stages lie on the devices.
        last: the kind of the action that needs a micro-batch's features last.
    """
    devices, none = range(epoch.devices), Staleness((0,) * epoch.batch, (0,) * epoch.batch)
    steps, staleness = (
        1 if kind.drains else 2 * epoch.devices + 2,
        epoch.staleness or (none,) * epoch.devices,
    )
    schedule = kind.schedule_of(
        dataclasses.replace(epoch, samples=steps * epoch.batch, staleness=staleness)
    )

    # Programs are read once, so each is counted on new ones.
    def counts(first: Kind) -> list[tuple[int, ...]]:
        programs = schedule.programs(devices)
        return [
            kept_micro_batches(programs[device], epoch.chunks, last, first) for device in devices
        ]

    features = counts(Kind.FORWARD)
    if kind.recomputes:
        again = counts(Kind.RECOMPUTE)
    elif last is Kind.GRADIENT:
        again = counts(Kind.BACKWARD)
    else:
        again = [(1,) * fold.chunks] * len(devices)
    programs = schedule.programs(devices)
    copies = tuple(weight_copies(programs[device]) for device in devices)
    places = [(fold.device(stage), fold.chunk(stage)) for stage in range(fold.count)]
    kept = tuple(features[device][chunk] for device, chunk in places)
    redone = tuple(again[device][chunk] for device, chunk in places)
    return kept, redone, tuple(copies[device] for device, _ in places)
