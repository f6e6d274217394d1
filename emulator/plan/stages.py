"""Stages on boards that take actions as a whole: what they cost, and how the chain is cut into them.

How boards execute and when messages leave them is the cluster's (`[machine]`), whatever the schedule. With engines of
their own for FP, EB and PG and rows that are streamed, boards are FPDeep's, whose times are those of rows
(`timing.Timing`); on all others, actions are timed as a whole (`timing.StageClock`).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..cluster import Board, Cluster
from ..common import InputError
from ..mapping import VALUE_BYTES, Mapping, Stream, cut_channels, partition, partition_layers, whole_layers
from ..network import Network
from ..pipeline import Backward, Engines, Machine, StageCosts, Transport, warm_ups
from ..profile import BoardStage, Data, DoesNotFit, PartNeeds, board_stage
from ..schedule import EpochShape, Kind, ScheduleKind, Staleness, with_versions

if TYPE_CHECKING:
    from ..config import Config

_SUITS = {Engines.SPLIT: "streamed", Engines.SHARED: "hidden", Engines.TURNS: "stored"}
_VALUE_BYTES = {"fp32": 4, "fp16": 2}
_UNLIMITED = 1 << 62


def machine_of(cluster: Cluster, kind: ScheduleKind) -> Machine | None:
    """Return how a cluster's boards and links work under a kind of schedule; None if they are FPDeep's.

    Raises:
        InputError: rows are to be streamed from engines that have no time for each row.
    """
    engines = Engines(cluster.engines)
    transport = Transport(cluster.transport or _SUITS[engines])
    if transport is Transport.STREAMED:
        if engines is Engines.SPLIT:
            return None
        raise InputError(
            f"`transport` = 'streamed': rows leave engines that are split, and these are {engines.value}; should be"
            " 'stored' or 'hidden'"
        )
    backward = Backward.SPLIT if kind.splits_backward else Backward.FUSED
    return Machine(engines, transport, backward)


def folded(cluster: Cluster, devices: int, chunks: int, machine: Machine | None) -> Cluster:
    """Return a cluster with a board for each stage of a chain whose devices have `chunks` stages each.

    Stage c N + d is on device d of N. Its share of the board's memory is one in `chunks`; of all else, too, where
    engines work at the same time. A link closes the chain to a ring.
    """
    if chunks == 1:
        return cluster
    stages, apart = devices * chunks, machine is None or machine.engines is Engines.SPLIT
    boards = tuple(cluster.board(stage % devices).share(chunks, whole=not apart) for stage in range(stages))
    links = [cluster.link_at(stage % devices) for stage in range(stages - 1)]
    if apart:
        links = [dataclasses.replace(link, bandwidth_mbps=max(1, link.bandwidth_mbps // chunks)) for link in links]
    return dataclasses.replace(cluster, boards=boards, own_links=tuple(links))


def chunks_of(config: Config, devices: int) -> int:
    """Return the number of stages of a device; one device alone has one.

    Raises:
        InputError: the schedule has one stage on each device.
    """
    kind = config.schedule
    if config.chunks is not None and config.chunks > 1 and kind.chunks == 1:
        raise InputError(
            f"`chunks` = {config.chunks}: schedule {kind.name} has one stage on each device; try schedule interleaved"
        )
    return 1 if devices == 1 else config.chunks or kind.chunks


def check_chunks(config: Config, network: Network, devices: int, chunks: int) -> None:
    """Check that there is something for each of several stages of a device.

    Raises:
        InputError: there are more stages than layers or channels.
    """
    whole = config.stages == "layers"
    parts = len(network.layers) if whole else sum(map(cut_channels, network.layers))
    if devices * chunks > parts:
        kind = "layers" if whole else "channels"
        raise InputError(
            f"`chunks` = {chunks}: {devices} devices with {chunks} stages each are {devices * chunks} stages, and"
            f" {network.name} has {parts} {kind}; should be at most {parts // devices}"
        )


def warm_ups_of(config: Config, devices: int, micro_batches: int) -> tuple[int, ...]:
    """Return the warm-up forwards of each device that a configuration gives; () for the schedule's own.

    Raises:
        InputError: the schedule has a fixed order, or the expression cannot be read.
    """
    if config.warm_up is None:
        return ()
    if not config.schedule.takes_warm_ups:
        raise InputError(
            f"`warm_up` = {config.warm_up!r}: schedule {config.schedule.name} has a fixed order; kinds of 1F1B and FBP"
            " take a warm-up"
        )
    return warm_ups(config.warm_up, devices, micro_batches)


def kept_micro_batches(kind: ScheduleKind, epoch: EpochShape) -> tuple[int, ...]:
    """Return for each stage the most micro-batches between their F and the action that needs their features last."""
    last = Kind.GRADIENT if kind.splits_backward else Kind.BACKWARD
    programs = kind.generate(_few_steps(epoch)).programs(range(epoch.devices))
    kept = [0] * (epoch.devices * epoch.chunks)
    for device, program in programs.items():
        now = dict.fromkeys(range(epoch.chunks), 0)
        for action in program:
            if action.kind is Kind.FORWARD and (action.span is None or not action.span[0]):
                now[action.chunk] += 1
                stage = action.chunk * epoch.devices + device
                kept[stage] = max(kept[stage], now[action.chunk])
            elif action.kind is last:
                now[action.chunk] -= action.span is None or not action.span[0]
    return tuple(kept)


def _few_steps(epoch: EpochShape) -> EpochShape:
    """Return an epoch of as many mini-batches as show all that repeats."""
    none = Staleness((0,) * epoch.batch, (0,) * epoch.batch)
    steps = 2 * epoch.devices + 2
    return dataclasses.replace(epoch, samples=steps * epoch.batch, staleness=epoch.staleness or (none,) * epoch.devices)


def weight_copies(kind: ScheduleKind, epoch: EpochShape) -> list[int]:
    """Return for each device the most versions of its weights that it keeps at a time."""
    programs = kind.generate(_few_steps(epoch)).programs(range(epoch.devices))
    found = []
    for device in range(epoch.devices):
        kept = peak = 1
        for each in with_versions(programs[device]):
            kept += each.keeps
            peak = max(peak, kept)
            kept -= len(each.frees)
        found.append(peak)
    return found


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
        return samples * sum(stream.sample_bytes for stream in streams) * self.value_bytes // VALUE_BYTES

    def costs(self, stage: int, samples: int) -> StageCosts:
        """Return the costs of a stage for a micro-batch of `samples` samples, without transfers.

        Raises:
            InputError: the board's memory is too small, with stage, bytes and capacity.
        """
        return self.stage(stage, samples).costs

    def memory_bytes(self, stage: int) -> tuple[tuple[int, int, int], int]:
        """Return a stage's bytes of weights, gradients and features on chip, and all its bytes off chip."""
        found, kept = self.stage(stage, self.samples), self.kept_samples[stage]
        weights = gradients = features = 0
        for layer in found.layers:
            needs = PartNeeds.of(layer.part, self.value_bytes)
            copies = self.weight_copies[stage]
            weights += 0 if Data.WEIGHTS & layer.off_chip else copies * needs.parameter_bytes
            gradients += 0 if Data.GRADIENTS & layer.off_chip else needs.parameter_bytes
            features += 0 if Data.FEATURES & layer.off_chip else kept * needs.feature_bytes
        return (weights, gradients, features), found.off_chip_bytes

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
    kind, size = config.schedule, min(epoch.micro_batch, epoch.batch)
    kept = tuple(each * size for each in kept_micro_batches(kind, epoch))
    copies = tuple(weight_copies(kind, epoch)) * epoch.chunks
    value_bytes = _VALUE_BYTES[config.precision]

    def cost(stage: int, begin: int, end: int) -> float:
        held = whole_layers(network, begin, end)
        try:
            found = board_stage(
                held,
                boards[stage],
                size,
                kept[stage],
                weight_copies=copies[stage],
                stage=stage,
                value_bytes=value_bytes,
            )
        except DoesNotFit:
            return math.inf
        return found.costs.work_ps

    if config.stages == "layers":
        mapping = partition_layers(network, cluster, count, cost)
    else:
        mapping = partition(network, cluster, count)
    found = PlannedStages(mapping, tuple(boards), machine, epoch.chunks, kept, copies, size, value_bytes)
    for stage in range(count):
        found.costs(stage, size)
    return found
