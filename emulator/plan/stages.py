"""Stages on boards that take actions as a whole: what they cost, and how the chain is cut into
them.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..cluster import Board, Cluster, Link
from ..common import InputError
from ..explore import Demand, Pieces, filled_cut, fits_at_all
from ..explore import partition as find_partition
from ..mapping import SINGLE_STORAGE, Mapping, Stream, partition_layers, slice_works, whole_layers
from ..network import Network
from ..number import Storage
from ..profile import (
    BoardStage,
    BoardStages,
    DataBytes,
    DoesNotFit,
    MeasuredBoardStages,
    Profile,
    board_stage,
    measured_stage,
    one_set,
    streams_bytes,
    with_offload,
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

if TYPE_CHECKING:
    from ..config import Config

_UNLIMITED = 1 << 62


@dataclasses.dataclass(frozen=True)
class PlannedStages:
    """The stages of a mapping on boards that take actions as a whole.

    By stage, `kept_samples` are the most samples whose features are kept, `weight_copies` the most
    versions of the weights, and `redone` the most micro-batches whose recomputed features are there
    at a time: several where W is apart from B. Micro-batches are of `samples` samples. `storage`
    has the formats of what is stored, of which replicas may share some out, and the weights
    themselves in `weight_shares`. The features of `recomputed` layers, by index, are computed again
    in B, or `apart` from it in R. Where it `offloads`, O and L have times. With a `profile`, times
    of layers are those that it has.

    A board has one set of engines, for all products of its stage; `alpha` of it is built of DSPs.
    """

    mapping: Mapping
    boards: tuple[Board, ...]
    machine: Machine
    fold: Fold
    kept_samples: tuple[int, ...]
    weight_copies: tuple[int, ...]
    samples: int
    storage: Storage = SINGLE_STORAGE
    weight_shares: int = 1
    recomputed: frozenset[int] = frozenset()
    profile: Profile | None = None
    alpha: float = 1.0
    redone: tuple[int, ...] = ()
    apart: bool = False
    offloads: bool = False

    def message_bytes(self, streams: Iterable[Stream], samples: int) -> int:
        """Return the bytes of a message with `samples` samples of some streams."""
        return samples * streams_bytes(streams)

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
            slices = self.mapping.devices[stage]
            planned = board_stage(
                slices,
                one_set(self.boards[stage], slices, self.alpha),
                samples,
                self.kept_samples[stage],
                weight_copies=self.weight_copies[stage],
                stage=stage,
                storage=self.storage,
                shares=self.weight_shares,
                recomputed=self.recomputed,
                redone=self.redone[stage] if self.redone else 1,
                recompute_apart=self.apart,
            )
            if self.profile is not None:
                times = self.profile.by_layer(self.boards[stage].name, samples)
                planned = measured_stage(planned, times, self.recomputed, apart=self.apart)
            if self.offloads:
                planned = with_offload(planned, self.boards[stage], apart=self.apart)
            self._found[key] = planned
        return self._found[key]

    def with_engines(self, cluster: Cluster) -> Cluster:
        """Return a cluster, which has a board for each stage, with the engines of the stages."""
        held = self.mapping.devices
        if self.fold.chunks > 1:  # the stages of a board share its engines
            held = (tuple(itertools.chain.from_iterable(held)),) * len(held)
        before = [cluster.board(stage) for stage in range(len(held))]
        boards = tuple(one_set(*pair, self.alpha) for pair in zip(before, held, strict=True))
        if boards == (*before,):
            return cluster
        # Boards behind the chain may be those of other replicas.
        return dataclasses.replace(cluster, boards=(*boards, *cluster.boards[len(held) :]))

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
    layers = whole_layers(network, 0, len(network.layers))
    works = [*itertools.chain.from_iterable(map(slice_works, layers))]
    try:
        wide = [board.one_set(works, cluster.alpha) for board in boards]
    except InputError as error:
        raise InputError(f"`precision` = {precision}: {error}") from None
    boards = wide if epoch.chunks > 1 else boards  # the stages of a board share its engines
    if config.memory != "modelled":
        # Then nothing leaves the chip, and memory ports take no time.
        boards = [dataclasses.replace(board, on_chip_memory_bytes=_UNLIMITED) for board in boards]  # type: ignore[type-var]  # all kinds are dataclasses
    size = min(epoch.micro_batch, epoch.batch)
    kept, redone, copies = _kept(config.schedule, epoch, fold, machine.frees_features)
    values = size, cluster.storage, cluster.sharing.weights, recomputed
    more: dict[str, Any] = {"redone": redone, "alpha": cluster.alpha}
    of_pieces = {**more, "precision": precision}
    if profile is None:
        pieces = BoardStages(network, boards, *values, **of_pieces)
    else:
        pieces = MeasuredBoardStages(network, boards, *values, profile=profile, **of_pieces)

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
        **more,
        apart=config.schedule.recomputes,
        offloads=config.schedule.offloads,
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
