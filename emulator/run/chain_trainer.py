"""Training hosted on chains of FPGAs: all replicas, and the segments that follow where boards
die.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...comm import Observer
from ...kernels import Arena
from ...launch import Ranks, SingleProcess
from ..data import Dataset
from ..device import (
    MASTER,
    TURNED,
    Bpram,
    DeviceNumerics,
    Epoch,
    FaultyNumerics,
    ImageSource,
    MapFormats,
    Rules,
    TensorScales,
    epoch_order,
    is_of_scales,
    numerics_of,
)
from ..mapping import BalancedParameters, DeviceStreams, kept_channels
from ..network import Layer
from ..number import Precision
from ..plan import ChainPlan, check_samples
from ..schedule import MicroBatch
from .replicas import build_replicas
from .results import (
    DeviceCounters,
    EpochRecord,
    EpochSizes,
    Exchanged,
    StepReports,
    Usage,
    Weights,
    usage_of,
)
from .segments import Leg, Position, Segment, replica_leg, soft_errors
from .state import LayerState, deal_state, gathered_state, make_whole
from .trainer import Programs, Trainer

if TYPE_CHECKING:
    from ..rtl import Reference


@dataclasses.dataclass(frozen=True)
class _MakeNumerics:
    """Factory of the numerics of a replica's devices, from the plan's network and seed."""

    segment: Segment
    replica: int

    def __call__(
        self, streams: DeviceStreams, blocks: Sequence[BalancedParameters], arena: Arena
    ) -> DeviceNumerics:
        start, seed = self.segment.plan.network.start, self.segment.plan.config.seed
        precision = self.segment.plan.config.precision.phases[0][1]
        formats = None
        if not precision.is_single:
            config = self.segment.plan.config
            # Samples of two mini-batches may be on the way when an update has ended another one.
            late = 1 if config.schedule.drains else 3
            scales = TensorScales(self.segment.samples, config.batch, late)
            formats = MapFormats(precision, seed, arena, self.replica, scales=scales)
        slices = [
            numerics_of(
                part, start, seed, arena, formats, kept_channels(part, streams.device, blocks)
            )
            for part in streams.slices
        ]
        stored = {
            number: Bpram(blocks[number], start, seed, arena, formats) for number in streams.stored
        }
        if self.segment.plan.config.rtl_device == streams.device:
            from ..rtl import rtl_numerics  # which few runs need

            return rtl_numerics(self.segment.plan, streams, slices, formats)
        errors = soft_errors(self.segment, self.replica, streams.device)
        if errors is None:
            numerics = DeviceNumerics(streams, slices, blocks, stored, formats)
            stages = self.segment.plan.stages
            if stages is not None:
                numerics.recompute(stages.recomputed, apart=stages.apart)
            return numerics
        return FaultyNumerics(errors, streams, slices, blocks, stored, formats)


class ChainTrainer(Trainer):
    """This rank's part of all replicas' chains in the first of some segments."""

    plan: ChainPlan

    def __init__(self, segments: Sequence[Segment], data: Dataset, ranks: Ranks) -> None:
        segment, *self._later = segments
        plan = segment.plan
        check_samples(plan.config, plan.replicas, data.n_train)
        comms, make = (ranks.comm, ranks.exchange_comm), functools.partial(_MakeNumerics, segment)
        self.replicas = build_replicas(
            segment, ranks.rank, ranks.size, comms, self.most_samples(plan), make
        )
        self._segment, self._exchanged = segment, Exchanged()
        self._observer: Observer | None = None
        super().__init__(
            plan, data, ranks, self.replicas.carriers, self.replicas.chains, segment.start_ps
        )

    @classmethod
    def of(cls, plan: ChainPlan, data: Dataset, ranks: Ranks) -> ChainTrainer:
        """Return the trainer of a plan whose boards all live."""
        return cls([Segment(plan, data.n_train)], data, ranks)

    @property
    def began(self) -> tuple[Position, int]:
        """See `Trainer`."""
        return self._segment.begin, self._segment.start_ps

    def at(self, position: Position) -> ChainTrainer:
        """See `Trainer`: a board has died, and the ones that are left have the weights of this one;
        or formats change.
        """
        reached = [place for place, segment in enumerate(self._later) if segment.begin <= position]
        return self._handed_over(self._later[reached[-1] :], position) if reached else self

    def begin_at(self, position: Position, now_ps: int, *, ended: bool = False) -> ChainTrainer:
        """See `Trainer`."""
        if (position, now_ps) == self.began:
            return self
        self.close()
        segments = [self._segment, *self._later]
        reached = [
            place
            for place, segment in enumerate(segments)
            if segment.begin < position or (segment.begin == position and not ended)
        ]
        place = reached[-1] if reached else 0
        begun = dataclasses.replace(segments[place], begin=position, start_ps=now_ps)
        trainer = ChainTrainer([begun, *segments[place + 1 :]], self._data, self.ranks)
        trainer.observe(self._observer)
        return trainer

    def observe(self, observer: Observer | None) -> None:
        """Call `observer` with what the first replica's engines, links and exchanges here serve
        from now on, in later segments, too.
        """
        self._observer = observer
        if observer is not None:
            self.replicas.observe(observer)

    def _handed_over(self, segments: Sequence[Segment], position: Position) -> ChainTrainer:
        """Return the trainer of the next segments, with the arrays and the history of this one."""
        now_ps, clocks = (
            max(self.ranks.share(self.now_ps(position))),
            self.ranks.share(self.clocks()),
        )
        residuals = self.residuals()
        self.close()
        start_ps = max(segments[0].start_ps, now_ps)
        first = dataclasses.replace(segments[0], start_ps=start_ps)
        after = ChainTrainer([first, *segments[1:]], self._data, self.ranks)
        after.observe(self._observer)
        for before, layer in zip(self.plan.network.layers, after.plan.network.layers, strict=True):
            states = [gathered_state(self.ranks, before, held) for held in self.learnt()]
            if self.plan.data_parallel.zero:
                make_whole(states)
            goes_on = _own_formats(self.plan, before) == _own_formats(after.plan, layer)
            for replica, (state, taken) in enumerate(zip(states, after.learnt(), strict=True)):
                # Before an update there are values alone.
                kinds = {kind for arrays in state.values() for kind in arrays}
                kinds -= set() if goes_on else {MASTER, TURNED}
                read = functools.partial(_of_state, state, goes_on)
                deal_state(self.ranks, layer, taken, read, sorted(kinds), replica)
        for name, row in after.residuals().items():
            row[...] = residuals[name]
        # Where a board has died formats go on, and so do the scales of the last checkpoint.
        after.take_loss_scale(_counts(clocks, with_scales=self._segment.death is not None))
        after.so_far, after.history, after.started_s = self.so_far, self.history, self.started_s
        return after

    def _programs(
        self, number: int, leg: Leg, order: NDArray[np.int64], rules: Rules, reports: StepReports
    ) -> Programs:
        sizes, programs = self._step_sizes[leg.first : leg.last], list[Coroutine[Any, Any, None]]()
        for replica, (chain, ends) in enumerate(zip(self.replicas.chains, self._ends, strict=True)):
            places, schedule = replica_leg(self.plan, replica, self._samples, leg)
            ends.attach_training(chain, order, number, places)
            numbers = places + number * self._samples
            epoch = Epoch(
                *(
                    schedule.micro_batches,
                    schedule.step_samples,
                    sizes,
                    rules.of_leg(leg.first),
                    numbers,
                ),
                chain.timeline(schedule),
            )
            own = schedule.programs([*chain.by_device])
            programs += chain.train(own, epoch, reports.of(replica), ahead=self.ranks.idles)
        return programs + self.replicas.serve(len(sizes))

    def _take_sent(self) -> EpochSizes:
        return self.replicas.take_sizes()

    def _sizes_of(self, sent: EpochSizes) -> EpochSizes:
        return sent

    def _totals(self) -> tuple[Exchanged, Counter[str]]:
        rounded = Counter[str]()
        for numerics in (
            device.numerics for chain in self.replicas.chains for device in chain.devices
        ):
            if numerics is not None:
                rounded.update(numerics.take_rounded())
        return self.replicas.exchanged(), rounded

    def _completed(
        self, result: EpochRecord, totals: list[tuple[Exchanged, Counter[str]]]
    ) -> EpochRecord:
        before, self._exchanged = (
            self._exchanged,
            sum((exchanged for exchanged, _ in totals), Exchanged()),
        )
        rounded = Counter[str]()
        for _, counts in totals:
            rounded.update(counts)
        return dataclasses.replace(
            result, exchanged=self._exchanged.since(before), rounded=dict(rounded)
        )

    def usage(self) -> Usage:
        """See `Trainer`."""
        timing, devices = self.plan.timing, self.replicas.chains[0].devices
        counters = [DeviceCounters.of(device.clock, timing) for device in devices]
        of_ranks = self.ranks.gather((counters, self._updated_ps()))
        if self.ranks.rank > 0:
            return Usage(0, (), ())
        counters = [counted for of_rank, _ in of_ranks for counted in of_rank]
        return usage_of(
            timing,
            counters,
            self.plan.steady.in_flight,
            max(updated_ps for _, updated_ps in of_ranks),
        )

    def _updated_ps(self) -> int:
        chains = self.replicas.chains
        return max(
            (device.clock.updated_ps for chain in chains for device in chain.devices), default=0
        )

    def now_ps(self, position: Position) -> int:
        """See `Trainer`."""
        return self._updated_ps() + self._from_ps

    def clocks(self) -> dict[str, Any]:
        """See `Trainer`."""
        before = {"exchanged": self._exchanged.plain()} if self.ranks.rank == 0 else {}
        return {**self.replicas.clocks(), **before}

    def residuals(self) -> Mapping[str, NDArray[np.float32]]:
        """See `Trainer`."""
        return self.replicas.residuals()

    def take_loss_scale(self, state: Mapping[str, Any]) -> None:
        """See `Trainer`."""
        counts = _counts([state], with_scales=True)
        self.replicas.take_loss_scale(counts, differ=bool(self.plan.faults.flips))

    def restore_clocks(self, state: Mapping[str, Any]) -> None:
        """See `Trainer`."""
        self.replicas.restore_clocks(state)
        self.take_loss_scale(state)
        self._exchanged = Exchanged.of_plain(state["exchanged"])


def _of_state(
    state: LayerState,
    goes_on: bool,
    layer: Layer,
    replica: int,
    name: str,
    kind: str,
    shape: tuple[int, ...],
) -> NDArray[np.float32]:
    """Return an array of a layer whose formats go on, or one from which others are rounded anew."""
    arrays = state[name]
    return arrays[MASTER] if kind == "value" and MASTER in arrays and not goes_on else arrays[kind]


def _counts(clocks: Sequence[Mapping[str, Any]], *, with_scales: bool) -> dict[str, Any]:
    """Return the counts in all ranks' clocks, with the scales of maps and weights or without: these
    are of their formats.
    """
    left: dict[str, Any] = {}
    for name, state in (entry for of_rank in clocks for entry in of_rank.items()):
        if isinstance(state, dict) and "counts" in state:
            counts = state["counts"].items()
            kept = {key: n for key, n in counts if with_scales or not is_of_scales(key)}
            left[name] = {"counts": kept}
    return left


def _own_formats(plan: ChainPlan, layer: Layer) -> Precision:
    own = plan.config.precision.of(layer.formats)
    return dataclasses.replace(own, layers=(), epochs=())


def trained_mini_batches(plan: ChainPlan, data: Dataset) -> Reference:
    """Train an epoch of a plan on a data set of whole mini-batches, from drawn biases, for RTL to
    be compared with.

    Raises:
        InputError: the loss is not finite, or the data do not suit the plan.
    """
    from ..rtl import MiniBatch, Reference, drawn_biases  # which few runs need

    trainer, config = ChainTrainer.of(plan, data, SingleProcess()), plan.config
    for numerics in trainer.slices:
        for bias in (array for name, array in numerics.arrays().items() if name == "bias"):
            bias[...] = drawn_biases(numerics.part.layer, config.seed)
    before = _all_weights(trainer)
    for leg in trainer.legs:
        trainer.train(0, leg)
    order = epoch_order(config.seed, 0, data.n_train)
    arena = Arena()
    own = plan.network.entry, plan.network.corner
    source = ImageSource(data.train_images, data.normalisation(), arena, *own)
    source.order, source.epoch = order, 0
    images = source.images(MicroBatch(0, 0, 0, data.n_train).whole)
    formats = MapFormats(config.precision, config.seed, arena)
    reads = plan.network.layers[0].reads
    images = formats.of(reads.formats).rounded(
        "activations", images, reads.number, np.arange(data.n_train)
    )
    labels, rules = data.train_labels[order], trainer._rules(0)
    places = [slice(first, first + config.batch) for first in range(0, data.n_train, config.batch)]
    batches = [
        MiniBatch(images[place].copy(), labels[place], rules.rate(step), config.label_smoothing)
        for step, place in enumerate(places)
    ]
    return Reference(batches, before, _all_weights(trainer))


def _all_weights(trainer: ChainTrainer) -> Weights:
    """Return copies of all layers' weights, with the master copy of those that have one."""
    weights: Weights = {}
    for layer_name, arrays in trainer.weights().items():
        weights[layer_name] = {name: array.copy() for name, array in arrays.items()}
    precision = trainer.plan.config.precision
    for layer in trainer.plan.network.layers:
        if precision.of(layer.formats).has_copies:
            state = gathered_state(trainer.ranks, layer, trainer.learnt()[0])
            weights[layer.name][MASTER] = state["weight"][MASTER].copy()
    return weights
