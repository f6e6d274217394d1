"""Training: the chain with numerics, epoch after epoch, on one rank or many."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ...comm.exchange.groups import step_sizes
from ...comm.host import Pump, run
from ...comm.ranks import Ranks
from ...kernels.arena import Arena
from ...kernels.codec.codec import NoCodec, parse_codec
from ..common.errors import InputError
from ..data.dataset import Dataset
from ..device.balanced import Bpram
from ..device.device import Epoch
from ..device.ends import Head, ImageSource, NoHead, NoImages, SoftmaxHead, Source, Tally, epoch_order
from ..device.numerics import SliceNumerics
from ..device.parameter import Sgd
from ..mapping.balancing import Loan
from ..mapping.slices import Cut, Slice
from ..plan.plan import Plan
from ..plan.replication import check_samples
from ..schedule.pipeline import cut_samples
from .chain import Chain
from .replicas import Exchanged, build_fleet
from .usage import DeviceCounts, Figures, count, figures

_EVALUATION_MICRO_BATCH = 16  # at least; more gain little and take memory
_EVALUATION_ROUND = 4  # micro-batches for each rank

Weights = dict[str, dict[str, NDArray[np.float32]]]


@dataclasses.dataclass(frozen=True)
class EpochResult:
    """One row of the history, with the figures up to then; times since the start of training.

    `exchanged` is of this epoch and all devices.
    """

    epoch: int
    learning_rate: float
    train: Tally
    test: Tally
    virtual_time_ps: int
    host_time_s: float
    figures: Figures
    exchanged: Exchanged = dataclasses.field(default_factory=Exchanged)


@dataclasses.dataclass(frozen=True)
class StepResult:
    """A replica's share of a mini-batch that is through on its chain's last device."""

    epoch: int
    step: int
    tally: Tally
    virtual_time_ps: int


OnStep = Callable[[StepResult], None]
OnEpoch = Callable[[EpochResult, Weights], None]


def train(
    plan: Plan, data: Dataset, ranks: Ranks, on_step: OnStep, on_epoch: OnEpoch, *, gather_weights: bool
) -> list[EpochResult]:
    """Train on all ranks together; rank 0 hears of steps and epochs, and gets the history.

    `on_epoch` gets the weights of all layers where `gather_weights` asks for them, else an empty dictionary.

    Raises:
        InputError: the loss is not finite any more.
    """
    ranks.on_object = on_step
    trainer = _Trainer(plan, data, ranks)
    history = []
    ranks.running = ranks.size > 1
    try:
        for epoch in range(plan.config.epochs):
            result = trainer.epoch(epoch)
            weights = trainer.weights() if gather_weights else {}
            if result is not None:
                history.append(result)
                on_epoch(result, weights)
    finally:
        ranks.on_object = lambda _: None
    ranks.running = False
    trainer.fleet.close()
    return history


@dataclasses.dataclass(frozen=True)
class _Numbers:
    """Makes what computes, from the plan's network and seed."""

    plan: Plan

    def slices(self, device: int, arena: Arena) -> list[SliceNumerics]:
        """For each slice of a device."""
        start, seed = self.plan.network.start, self.plan.config.seed
        return [SliceNumerics(part, start, seed, arena) for part in self.plan.mapping.devices[device]]

    def stored(self, loan: Loan) -> Bpram:
        """For a loan."""
        return Bpram(loan, self.plan.network.start, self.plan.config.seed)


@dataclasses.dataclass(frozen=True)
class _Share:
    """What an epoch left on one rank: counts of its devices by replica, hits and losses, and the exchange so far."""

    counts: dict[int, list[DeviceCounts]]
    trained: Tally
    tested: Tally
    exchanged: Exchanged


class _Trainer:
    """This rank's part of all replicas' chains, and the data at their ends."""

    def __init__(self, plan: Plan, data: Dataset, ranks: Ranks) -> None:
        self.plan, self.ranks = plan, ranks
        self.samples = data.n_train
        config = plan.config
        weights_codec = parse_codec(config.compress_weights)
        self._rounding = None if isinstance(weights_codec, NoCodec) else weights_codec
        most = max(config.micro_batch, _EVALUATION_MICRO_BATCH)
        check_samples(config, plan.data_parallel.replicas, data.n_train)
        comms = ranks.comm, ranks.exchange_comm
        self.fleet = build_fleet(plan, ranks.rank, ranks.size, comms, most, _Numbers(plan))
        self.pumps: list[Pump] = [*self.fleet.pumps] if ranks.comm is None else [*self.fleet.pumps, ranks]
        self.ends = [_Ends.of(chain, data) for chain in self.fleet.chains]
        self._exchanged = Exchanged()
        self.test_batches = cut_samples(data.n_test, max(data.n_test, 1), most)
        ranks.gather(None)  # all are ready
        self.started_s = time.perf_counter()

    @np.errstate(over="ignore", invalid="ignore")  # training that diverges is told by its loss
    def epoch(self, number: int) -> EpochResult | None:
        """Train an epoch and evaluate; the result is rank 0's."""
        rate = self.plan.config.rate_in(number)
        trained = self._train(number, rate)
        tested = self._evaluate()
        counts = {
            replica: [count(device, self.plan.timing) for device in chain.devices]
            for replica, chain in enumerate(self.fleet.chains)
        }
        shares = self.ranks.gather(_Share(counts, trained, tested, self.fleet.exchanged()))
        if self.ranks.rank > 0:
            return None
        end_ps = max(c.updated_ps for share in shares for held in share.counts.values() for c in held)
        first = [counted for share in shares for counted in share.counts[0]]
        figured = figures(self.plan.timing, first, self.plan.steady.in_flight, end_ps)
        before, self._exchanged = self._exchanged, sum((share.exchanged for share in shares), Exchanged())
        return EpochResult(
            number,
            rate,
            sum((share.trained for share in shares), Tally()),
            sum((share.tested for share in shares), Tally()),
            end_ps,
            time.perf_counter() - self.started_s,
            figured,
            self._exchanged.since(before),
        )

    def _train(self, number: int, rate: float) -> Tally:
        config = self.plan.config
        order = epoch_order(config.seed, number, self.samples)
        totals = step_sizes(self.samples, config.batch)
        rule = Sgd(rate, config.momentum, config.weight_decay, self._rounding)
        total = Tally()

        def on_step(step: int, tally: Tally, virtual_time_ps: int) -> None:
            nonlocal total
            if not math.isfinite(tally.loss):
                raise InputError(
                    f"`learning_rate` = {rate:g}: training diverged, the loss is {tally.mean_loss}"
                    f" in epoch {number + 1}, step {step + 1}; try a smaller one, such as {rate / 10:g}"
                )
            total += tally
            self.ranks.tell(StepResult(number, step, tally, virtual_time_ps))

        programs = []
        for replica, (chain, ends) in enumerate(zip(self.fleet.chains, self.ends, strict=True)):
            places = self.plan.data_parallel.places(self.samples, config.batch, replica)
            schedule = self.plan.schedule(len(places))
            ends.train_source.order = ends.train_head.order = order[places]
            chain.attach(ends.train_source, ends.train_head)
            numbers = places + number * self.samples
            epoch = Epoch(schedule.micro_batches, schedule.step_samples, numbers, rule, totals)
            actions = schedule.programs([device.number for device in chain.devices])
            programs += chain.train(actions, epoch, on_step)
        run([*programs, *self.fleet.serve(len(totals))], self.pumps, self.ranks.settling)
        return total

    def _evaluate(self) -> Tally:
        """Replicas are alike, so the first one does it."""
        chain, ends = self.fleet.chains[0], self.ends[0]
        chain.attach(ends.test_source, ends.test_head)
        if not self.test_batches:
            return Tally()
        # In rounds, so that a rank that is ahead does not fill its memory with maps that nobody takes yet.
        size = _EVALUATION_ROUND * self.ranks.size
        for first in range(0, len(self.test_batches), size):
            batches = self.test_batches[first : first + size]
            run([device.evaluate(batches) for device in chain.devices], self.pumps, self.ranks.settling)
        return ends.test_head.step_done(0)

    def weights(self) -> Weights:
        """All layers' weights (oc, ic, kh, kw), and what their SFUs hold, on rank 0."""
        held = [
            (part, numerics.weights(), numerics.sfu.parameters() if numerics.sfu else {})
            for device in self.fleet.chains[0].devices
            for part, numerics in zip(device.slices, device.numerics, strict=True)
            if isinstance(numerics, SliceNumerics)
        ]
        gathered: Weights = {}
        for rank_held in self.ranks.gather(held):
            for part, weight, others in rank_held:
                _place(gathered, part, weight, others)
        return gathered


@dataclasses.dataclass(frozen=True)
class _Ends:
    """What a chain's first and last device work with in training and in evaluation, where they live here."""

    train_source: Source
    test_source: Source
    train_head: Head
    test_head: Head

    @classmethod
    def of(cls, chain: Chain, data: Dataset) -> _Ends:
        """The data set's images and labels."""
        normalisation = data.normalisation() if chain.starts_here else None

        def source(images: NDArray[np.uint8]) -> Source:
            return ImageSource(images, normalisation, chain.arena) if normalisation else NoImages()

        def head(labels: NDArray[np.int64]) -> Head:
            return SoftmaxHead(labels) if chain.ends_here else NoHead()

        train, test = source(data.train_images), source(data.test_images)
        return cls(train, test, head(data.train_labels), head(data.test_labels))


def _place(gathered: Weights, part: Slice, weight: NDArray[np.float32], others: dict[str, NDArray[np.float32]]) -> None:
    layer = gathered.setdefault(part.layer.name, {"weight": np.empty(part.layer.weight_shape, np.float32)})
    if part.cut is Cut.ICP:
        layer["weight"][:, part.begin : part.end] = weight
    else:
        layer["weight"][part.begin : part.end] = weight
    layer.update(others)
