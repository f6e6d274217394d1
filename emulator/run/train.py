"""Training: the chain with numerics, epoch after epoch, on one rank or many."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...comm import Observer, Pump, Ranks, run
from ...comm.exchange import step_sizes
from ...kernels import Arena
from ..data import Dataset
from ..device import (
    Bpram,
    DeviceNumerics,
    Epoch,
    Sgd,
    Tally,
    epoch_order,
    numerics_of,
)
from ..mapping import BalancedParameters, DeviceStreams
from ..plan import PairPlan, Plan, check_samples
from ..schedule import cut_samples
from .ends import Ends
from .epochs import EpochResult, OnEpoch, OnStep, StepReports, StepResult, Weights, train_epochs
from .layer_weights import gathered_weights
from .pair import PairTrainer
from .placement import Placement
from .replicas import Exchanged, build_replicas
from .sizes import EpochSizes
from .usage import DeviceCounters, usage_of

_EVALUATION_MICRO_BATCH = 16  # at least; larger ones gain little and take memory
_EVALUATION_ROUND = 4  # micro-batches for each rank


def train(
    plan: Plan | PairPlan,
    data: Dataset,
    ranks: Ranks,
    on_step: OnStep = lambda _: None,
    on_epoch: OnEpoch = lambda *_: None,
    *,
    gather_weights: bool,
    observer: Observer | None = None,
) -> list[EpochResult]:
    """Train on all ranks together; return the history, on rank 0.

    Args:
        plan: the plan to train.
        data: training and test images; ranks without an end of a chain need only the labels.
        ranks: the ranks of the run.
        on_step: called on rank 0 for each mini-batch.
        on_epoch: called on rank 0 for each epoch, with the weights of all layers if these are gathered, else {}.
        gather_weights: whether weights are gathered after each epoch; the same on all ranks.
        observer: called with what engines, links and exchanges of the first replica's devices on this rank serve; of a
            pair with nothing.

    Raises:
        InputError: the loss is no longer finite.
    """
    ranks.name(_placement(plan, ranks.size).described)
    ranks.on_object = _noting(on_step, ranks, len(step_sizes(data.n_train, plan.config.batch)))
    trainer = PairTrainer(plan, data, ranks) if isinstance(plan, PairPlan) else Trainer(plan, data, ranks)
    if observer is not None and isinstance(trainer, Trainer):
        trainer.replicas.observe(observer)
    with ranks.watch_progress(plan.config.stall_timeout):
        return train_epochs(trainer, plan.config.epochs, ranks, on_epoch, gather_weights=gather_weights)


def _placement(plan: Plan | PairPlan, ranks: int) -> Placement:
    """Return where all devices are, of all replicas."""
    return Placement(plan.devices * (1 if isinstance(plan, PairPlan) else plan.data_parallel.replicas), ranks)


def _noting(on_step: OnStep, ranks: Ranks, steps: int) -> OnStep:
    """Return `on_step`, with a note of each mini-batch for the case that a rank dies."""

    def noted(result: StepResult) -> None:
        ranks.note(f"epoch {result.epoch + 1}, step {result.step + 1} of {steps}")
        on_step(result)

    return noted


@dataclasses.dataclass(frozen=True)
class _MakeNumerics:
    """Factory of a device's numerics, from the plan's network and seed."""

    plan: Plan

    def __call__(self, streams: DeviceStreams, blocks: Sequence[BalancedParameters], arena: Arena) -> DeviceNumerics:
        start, seed = self.plan.network.start, self.plan.config.seed
        slices = [numerics_of(part, start, seed, arena) for part in streams.slices]
        stored = {number: Bpram(blocks[number], start, seed) for number in streams.stored}
        return DeviceNumerics(streams, slices, blocks, stored)


@dataclasses.dataclass(frozen=True)
class _RankResult:
    """An epoch on one rank: counters of the first replica's devices, tallies, the exchange so far, and sizes sent."""

    counters: list[DeviceCounters]
    end_ps: int
    trained: Tally
    tested: Tally
    exchanged: Exchanged
    sizes: EpochSizes


class Trainer:
    """This rank's part of all replicas' chains, and the data at their ends."""

    def __init__(self, plan: Plan, data: Dataset, ranks: Ranks) -> None:
        self.plan, self.ranks = plan, ranks
        self._samples = data.n_train
        config = plan.config
        self._rounding = config.compress_weights if config.compress_weights.compresses else None
        most = max(config.micro_batch, _EVALUATION_MICRO_BATCH)
        check_samples(config, plan.data_parallel.replicas, data.n_train)
        comms = ranks.comm, ranks.exchange_comm
        self.replicas = build_replicas(plan, ranks.rank, ranks.size, comms, most, _MakeNumerics(plan))
        self._pumps: list[Pump] = [*self.replicas.pumps] if ranks.comm is None else [*self.replicas.pumps, ranks]
        self._ends = [Ends.of(chain, data, plan.network.entry) for chain in self.replicas.chains]
        self._exchanged = Exchanged()
        self._test_batches = cut_samples(data.n_test, max(data.n_test, 1), most)
        ranks.gather(None)  # all are ready
        self._started_s = time.perf_counter()

    @np.errstate(over="ignore", invalid="ignore")  # divergence is detected by the loss
    def epoch(self, number: int) -> EpochResult | None:
        """Train an epoch and evaluate; return the result on rank 0, else None."""
        rate = self.plan.config.rate_in(number)
        trained = self._train(number, rate)
        tested = self._evaluate()
        chains = self.replicas.chains
        counters = [DeviceCounters.of(device.clock, self.plan.timing) for device in chains[0].devices]
        end_ps = max((device.clock.updated_ps for chain in chains for device in chain.devices), default=0)
        exchanged, sizes = self.replicas.exchanged(), self.replicas.take_sizes()
        results = self.ranks.gather(_RankResult(counters, end_ps, trained, tested, exchanged, sizes))
        if self.ranks.rank > 0:
            return None
        end_ps = max(result.end_ps for result in results)
        counters = [counted for result in results for counted in result.counters]
        usage = usage_of(self.plan.timing, counters, self.plan.steady.in_flight, end_ps)
        before, self._exchanged = self._exchanged, sum((result.exchanged for result in results), Exchanged())
        return EpochResult(
            number,
            rate,
            sum((result.trained for result in results), Tally()),
            sum((result.tested for result in results), Tally()),
            end_ps,
            time.perf_counter() - self._started_s,
            usage,
            self._exchanged.since(before),
            {source: sizes for result in results for source, sizes in result.sizes.items()},
        )

    def _train(self, number: int, rate: float) -> Tally:
        config = self.plan.config
        order = epoch_order(config.seed, number, self._samples)
        totals = step_sizes(self._samples, config.batch)
        rule = Sgd(rate, config.momentum, config.weight_decay, self._rounding)
        on_step = StepReports(self.ranks, number, rate)
        programs = []
        for replica, (chain, ends) in enumerate(zip(self.replicas.chains, self._ends, strict=True)):
            places = self.plan.data_parallel.samples_of(replica, self._samples, config.batch)
            schedule = self.plan.schedule(len(places))
            ends.attach_training(chain, order[places])
            numbers = places + number * self._samples
            epoch = Epoch(
                schedule.micro_batches, schedule.step_samples, totals, rule, numbers, self.plan.course(schedule)
            )
            actions = schedule.programs([*chain.by_device])
            programs += chain.train(actions, epoch, on_step)
        run([*programs, *self.replicas.serve(len(totals))], self._pumps, self.ranks.settling, self.ranks.watchdog)
        return on_step.total

    def _evaluate(self) -> Tally:
        """Evaluate on the first replica; all have the same weights."""
        chain, ends, head = self.replicas.chains[0], self._ends[0], self._ends[0].test_head
        chain.attach(ends.test_source, head, ends.test_lengths)
        if not self._test_batches:
            return Tally()
        # In rounds, so that a rank that is ahead does not fill its memory with maps that no device needs yet.
        size = _EVALUATION_ROUND * self.ranks.size
        for first in range(0, len(self._test_batches), size):
            batches = self._test_batches[first : first + size]
            run(
                [device.evaluate(batches) for device in chain.devices],
                self._pumps,
                self.ranks.settling,
                self.ranks.watchdog,
            )
        return Tally() if head is None else head.step_done(0)

    def weights(self) -> Weights:
        """Return all layers' weights (oc, ic, kh, kw), and the arrays of their SFUs, on rank 0."""
        devices = self.replicas.chains[0].devices
        held = [of for device in devices if device.numerics is not None for of in device.numerics.slices]
        return gathered_weights(self.ranks, self.plan.network, held)

    def close(self) -> None:
        """End all communication."""
        self.replicas.close()

    def state(self) -> dict[str, Any]:
        """Return the training state of this rank; call between epochs only."""
        return {"replicas": self.replicas.state(), "exchanged": self._exchanged}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self.replicas.restore(state["replicas"])
        self._exchanged = state["exchanged"]
