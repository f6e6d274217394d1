"""Training: the chain with numerics, epoch after epoch, on one rank or many."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ..comm.host import Pump, run
from ..comm.ranks import Ranks
from ..kernels.arena import Arena
from .chain import Chain, Placement, Wiring, build
from .data.dataset import Dataset
from .device.balanced import Bpram
from .device.device import Epoch
from .device.ends import Head, ImageSource, NoHead, NoImages, SoftmaxHead, Source, Tally, epoch_order
from .device.numerics import SliceNumerics
from .device.parameter import Sgd
from .errors import InputError
from .figures import DeviceCounts, Figures, count, figures
from .mapping import Cut, Slice
from .mapping.balancing import Loan
from .plan import Plan
from .schedule import cut_samples

_EVALUATION_MICRO_BATCH = 16  # at least; more gain little and take memory
_EVALUATION_ROUND = 4  # micro-batches for each rank

Weights = dict[str, dict[str, NDArray[np.float32]]]


@dataclasses.dataclass(frozen=True)
class EpochResult:
    """One row of the history, with the figures up to then; times since the start of training."""

    epoch: int
    learning_rate: float
    train: Tally
    test: Tally
    virtual_time_ps: int
    host_time_s: float
    figures: Figures


@dataclasses.dataclass(frozen=True)
class StepResult:
    """A mini-batch that is through on the chain's last device."""

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
    trainer.chain.close()
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


class _Trainer:
    """This rank's part of the chain, and the data at its ends."""

    def __init__(self, plan: Plan, data: Dataset, ranks: Ranks) -> None:
        self.plan, self.ranks = plan, ranks
        self.samples = data.n_train
        config = plan.config
        most = max(config.micro_batch, _EVALUATION_MICRO_BATCH)
        placement = Placement(plan.devices, ranks.size)
        wiring = Wiring(placement, ranks.rank, ranks.comm, config.throttle == "wall", most, with_data=True)
        self.chain: Chain = build(plan.timing, wiring, _Numbers(plan))
        self.pumps: list[Pump] = [*self.chain.pumps] if ranks.comm is None else [*self.chain.pumps, ranks]
        self.train_source, self.test_source = self._sources(data)
        self.train_head, self.test_head = self._heads(data)
        self.test_batches = cut_samples(data.n_test, max(data.n_test, 1), most)
        ranks.gather(None)  # all are ready
        self.started_s = time.perf_counter()

    def _sources(self, data: Dataset) -> tuple[Source, Source]:
        if not self.chain.starts_here:
            return NoImages(), NoImages()
        normalisation, arena = data.normalisation(), self.chain.arena
        return (
            ImageSource(data.train_images, normalisation, arena),
            ImageSource(data.test_images, normalisation, arena),
        )

    def _heads(self, data: Dataset) -> tuple[Head, Head]:
        if not self.chain.ends_here:
            return NoHead(), NoHead()
        return SoftmaxHead(data.train_labels), SoftmaxHead(data.test_labels)

    def epoch(self, number: int) -> EpochResult | None:
        """Train an epoch and evaluate; the result is rank 0's."""
        rate = self.plan.config.rate_in(number)
        trained = self._train(number, rate)
        tested = self._evaluate()
        counts = [count(device, self.plan.timing) for device in self.chain.devices]
        parts = self.ranks.gather((counts, trained, tested))
        if self.ranks.rank > 0:
            return None
        all_counts: list[DeviceCounts] = [counted for part in parts for counted in part[0]]
        figured = figures(self.plan.timing, all_counts, self.plan.steady.in_flight)
        host_time_s = time.perf_counter() - self.started_s
        train_tally, test_tally = (sum((part[i] for part in parts), Tally()) for i in (1, 2))
        return EpochResult(number, rate, train_tally, test_tally, figured.virtual_time_ps, host_time_s, figured)

    def _train(self, number: int, rate: float) -> Tally:
        config = self.plan.config
        schedule = self.plan.schedule(self.samples)
        source, head = self.train_source, self.train_head
        source.order = head.order = epoch_order(config.seed, number, self.samples)
        self.chain.attach(source, head)
        epoch = Epoch(
            schedule.micro_batches,
            schedule.step_samples,
            np.arange(self.samples, dtype=np.int64) + number * self.samples,
            Sgd(rate, config.momentum, config.weight_decay),
        )
        programs = schedule.programs([device.number for device in self.chain.devices])
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

        run(self.chain.train(programs, epoch, on_step), self.pumps, self.ranks.settling)
        return total

    def _evaluate(self) -> Tally:
        self.chain.attach(self.test_source, self.test_head)
        if not self.test_batches:
            return Tally()
        # In rounds, so that a rank that is ahead does not fill its memory with maps that nobody takes yet.
        size = _EVALUATION_ROUND * self.ranks.size
        for first in range(0, len(self.test_batches), size):
            batches = self.test_batches[first : first + size]
            run([device.evaluate(batches) for device in self.chain.devices], self.pumps, self.ranks.settling)
        return self.test_head.step_done(0)

    def weights(self) -> Weights:
        """All layers' weights (oc, ic, kh, kw), and what their SFUs hold, on rank 0."""
        held = [
            (part, numerics.weights(), numerics.sfu.parameters() if numerics.sfu else {})
            for device in self.chain.devices
            for part, numerics in zip(device.slices, device.numerics, strict=True)
            if isinstance(numerics, SliceNumerics)
        ]
        gathered: Weights = {}
        for rank_held in self.ranks.gather(held):
            for part, weight, others in rank_held:
                _place(gathered, part, weight, others)
        return gathered


def _place(gathered: Weights, part: Slice, weight: NDArray[np.float32], others: dict[str, NDArray[np.float32]]) -> None:
    layer = gathered.setdefault(part.layer.name, {"weight": np.empty(part.layer.weight_shape, np.float32)})
    if part.cut is Cut.ICP:
        layer["weight"][:, part.begin : part.end] = weight
    else:
        layer["weight"][part.begin : part.end] = weight
    layer.update(others)
