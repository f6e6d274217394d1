"""Stages on boards that take actions as a whole: what they cost, and how the chain is cut into them."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..cluster import Board, Cluster
from ..mapping import PRECISIONS, VALUE_BYTES, Mapping, Stream, partition, partition_layers
from ..network import Network
from ..pipeline import Machine, StageCosts
from ..profile import BoardStage, BoardStages, DataBytes, DoesNotFit, board_stage, streams_bytes
from ..schedule import EpochShape, Kind, ScheduleKind, Staleness, kept_micro_batches, weight_copies

if TYPE_CHECKING:
    from ..config import Config

_UNLIMITED = 1 << 62


@dataclasses.dataclass(frozen=True)
class PlannedStages:
    """The stages of a mapping on boards that take actions as a whole.

    By stage, `kept_samples` are the most samples whose features are kept, and `weight_copies` the most versions of the
    weights. Micro-batches are of `samples` samples.
    """

    mapping: Mapping
    boards: tuple[Board, ...]
    machine: Machine
    chunks: int
    kept_samples: tuple[int, ...]
    weight_copies: tuple[int, ...]
    samples: int
    value_bytes: int = VALUE_BYTES

    def message_bytes(self, streams: Iterable[Stream], samples: int) -> int:
        """Return the bytes of a message with `samples` samples of some streams."""
        return samples * streams_bytes(streams, self.value_bytes)

    def costs(self, stage: int, samples: int) -> StageCosts:
        """Return the costs of a stage for a micro-batch of `samples` samples, without transfers.

        Raises:
            InputError: the board's memory is too small, with stage, bytes and capacity.
        """
        return self.stage(stage, samples).costs

    def memory_bytes(self, stage: int) -> tuple[DataBytes, int]:
        """Return a stage's bytes of weights, gradients and features on chip, and all its bytes off chip."""
        found = self.stage(stage, self.samples)
        return found.data_on_chip, found.off_chip_bytes

    def port_bytes(self, stage: int, samples: int) -> int:
        """Return the bytes that such a micro-batch moves over the memory port."""
        return self.stage(stage, samples).moved_bytes

    def stage(self, stage: int, samples: int) -> BoardStage:
        """Return a stage on its board, for a micro-batch of `samples` samples; see `costs`."""
        key = stage, samples
        if key not in self._found:
            self._found[key] = board_stage(
                self.mapping.devices[stage],
                self.boards[stage],
                samples,
                self.kept_samples[stage],
                weight_copies=self.weight_copies[stage],
                stage=stage,
                value_bytes=self.value_bytes,
            )
        return self._found[key]

    @functools.cached_property
    def _found(self) -> dict[tuple[int, int], BoardStage]:
        return {}


def stages_on_boards(
    network: Network, cluster: Cluster, config: Config, machine: Machine, epoch: EpochShape
) -> PlannedStages:
    """Cut a network into stages on boards that take actions as a whole, so that the slowest is as fast as possible.

    Args:
        network: what to cut.
        cluster: the boards, one for each stage (`folded`).
        config: says whether stages are of whole layers or of channels, and whether memory is modelled.
        machine: how boards and links work.
        epoch: what the schedule is made for.

    Raises:
        InputError: there are more stages than layers or channels, or a board's memory is too small.
    """
    count = epoch.devices * epoch.chunks
    boards = [cluster.board(stage) for stage in range(count)]
    if config.memory == "ignored":
        boards = [dataclasses.replace(board, on_chip_memory_bytes=_UNLIMITED) for board in boards]  # type: ignore[type-var]  # all kinds are dataclasses
    size, value_bytes = min(epoch.micro_batch, epoch.batch), PRECISIONS[config.precision]
    kept, copies = _kept(config.schedule, epoch, machine.frees_features)
    pieces = BoardStages(network, boards, size, value_bytes)

    def cost(stage: int, begin: int, end: int) -> float:
        places = pieces.starts[begin], pieces.starts[end]
        try:
            return pieces.costs(*places, stage, kept[stage], weight_copies=copies[stage]).work_ps
        except DoesNotFit:
            return math.inf

    if config.stages == "layers":
        mapping = partition_layers(network, cluster, count, cost)
    else:
        mapping = partition(network, cluster, count)
    kept_samples = tuple(size * each for each in kept)
    found = PlannedStages(mapping, tuple(boards), machine, epoch.chunks, kept_samples, copies, size, value_bytes)
    for stage in range(count):
        found.costs(stage, size)
    return found


def _kept(kind: ScheduleKind, epoch: EpochShape, last: Kind) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the most micro-batches whose features each stage keeps, and the most versions of its weights.

    Args:
        kind: the kind of schedule.
        epoch: what it is made for; as many mini-batches are looked at as show all that repeats.
        last: the kind of the action that needs a micro-batch's features last.
    """
    devices, none = range(epoch.devices), Staleness((0,) * epoch.batch, (0,) * epoch.batch)
    samples, staleness = (2 * epoch.devices + 2) * epoch.batch, epoch.staleness or (none,) * epoch.devices
    schedule = kind.generate(dataclasses.replace(epoch, samples=samples, staleness=staleness))
    programs = schedule.programs(devices)
    features = [kept_micro_batches(programs[device], epoch.chunks, last) for device in devices]
    programs = schedule.programs(devices)
    copies = tuple(weight_copies(programs[device]) for device in devices)
    return tuple(of_device[chunk] for chunk in range(epoch.chunks) for of_device in features), copies * epoch.chunks
