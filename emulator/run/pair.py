"""Training on a GPU, alone or with an FPGA: this rank's part of it."""

from __future__ import annotations

import collections
import time
from collections.abc import Sequence

import numpy as np

from ...comm import Pump, Ranks, run
from ...comm.exchange import step_sizes
from ..data import Dataset
from ..device import (
    Epoch,
    Sgd,
    Tally,
    epoch_order,
    evaluate_on_gpu,
    train_on_gpu,
)
from ..pair import PairKey, Resource, pair_streams
from ..plan import PairPlan
from ..schedule import cut_samples
from .ends import Ends
from .epochs import EpochResult, StepReports, Weights
from .layer_weights import gathered_weights
from .pair_devices import Carried, build_pair
from .usage import ResourceUse, Usage

_EVALUATION_MICRO_BATCH = 16


class PairTrainer:
    """This rank's part of a pair, and the data of the GPU."""

    def __init__(self, plan: PairPlan, data: Dataset, ranks: Ranks) -> None:
        self.plan, self.ranks = plan, ranks
        self._samples, config = data.n_train, plan.config
        most = max(config.micro_batch, _EVALUATION_MICRO_BATCH)
        self.devices = build_pair(plan, ranks, config.micro_batch)
        self._rounding = config.compress_weights if config.compress_weights.compresses else None
        self._pumps: list[Pump] = [*self.devices.pumps] if ranks.comm is None else [*self.devices.pumps, ranks]
        self._ends = Ends.of(self.devices, data, plan.network.entry)
        self._test_batches = cut_samples(data.n_test, max(data.n_test, 1), most)
        self._sizes = step_sizes(self._samples, config.batch)
        self._step_ps = {size: plan.times_of(size).mini_batch_ps for size in set(self._sizes)}
        self._carried: collections.Counter[PairKey] = collections.Counter()
        ranks.gather(None)  # all are ready
        self._started_s = time.perf_counter()

    @np.errstate(over="ignore", invalid="ignore")  # divergence is detected by the loss
    def epoch(self, number: int) -> EpochResult | None:
        """See `epochs.Trainer`."""
        rate = self.plan.config.rate_in(number)
        trained, tested = self._train(number, rate), self._evaluate()
        results = self.ranks.gather((trained, tested, self.devices.take_carried()))
        if self.ranks.rank > 0:
            return None
        for _, _, carried in results:
            self._carried.update(carried)
        end_ps = (number + 1) * self.plan.epoch_ps(self._samples)
        return EpochResult(
            number,
            rate,
            sum((trained for trained, _, _ in results), Tally()),
            sum((tested for _, tested, _ in results), Tally()),
            end_ps,
            time.perf_counter() - self._started_s,
            Usage(end_ps, (), ()),
            resources=_resources(self.plan, self._sizes, number + 1, self._carried),
        )

    def _train(self, number: int, rate: float) -> Tally:
        plan, config = self.plan, self.plan.config
        order = epoch_order(config.seed, number, self._samples)
        rule = Sgd(rate, config.momentum, config.weight_decay, self._rounding)
        report, now_ps = StepReports(self.ranks, number, rate), number * plan.epoch_ps(self._samples)

        def on_update(step: int, tally: Tally) -> None:
            nonlocal now_ps
            now_ps += self._step_ps[self._sizes[step]]
            report(step, tally, now_ps)

        schedule = plan.schedule(self._samples)
        self._ends.attach_training(self.devices, order)
        numbers = np.arange(self._samples) + number * self._samples
        epoch = Epoch(schedule.micro_batches, schedule.step_samples, self._sizes, rule, numbers)
        programs = []
        if self.devices.gpu is not None:
            programs.append(train_on_gpu(self.devices.gpu, schedule.programs([0])[0], epoch, on_update))
        if self.devices.fpga is not None:
            programs.append(self.devices.fpga.train(schedule.programs([0])[0], schedule.micro_batches))
        run(programs, self._pumps, self.ranks.settling, self.ranks.watchdog)
        return report.total

    def _evaluate(self) -> Tally:
        """Evaluate on the GPU."""
        ends, gpu = self._ends, self.devices.gpu
        self.devices.attach(ends.test_source, ends.test_head, ends.test_lengths)
        if not self._test_batches:
            return Tally()
        run(
            [] if gpu is None else [evaluate_on_gpu(gpu, self._test_batches)],
            self._pumps,
            self.ranks.settling,
            self.ranks.watchdog,
        )
        return Tally() if ends.test_head is None else ends.test_head.step_done(0)

    def weights(self) -> Weights:
        """See `epochs.Trainer`."""
        gpu = self.devices.gpu
        return gathered_weights(self.ranks, self.plan.network, [] if gpu is None else gpu.slices)

    def close(self) -> None:
        """See `epochs.Trainer`."""
        for receiver in self.devices.receivers:
            receiver.close()


def _resources(plan: PairPlan, sizes: Sequence[int], epochs: int, carried: Carried) -> tuple[ResourceUse, ...]:
    """Return the use of all resources after some epochs, whose mini-batches have these sizes."""
    busy: collections.Counter[Resource] = collections.Counter()
    for size, count in collections.Counter(sizes).items():
        for resource, use in plan.times_of(size).busy.items():
            busy[resource] += epochs * count * use.busy_ps
    moved: collections.Counter[Resource] = collections.Counter()
    streams = pair_streams(plan.network, inputs_too=plan.inputs_too)
    for key, size in carried.items():
        moved[Resource.TO_FPGA if streams[key].to_fpga else Resource.TO_GPU] += size
    longest = plan.times.busy if sizes[0] == plan.config.batch else plan.times_of(sizes[0]).busy
    return tuple(
        ResourceUse(each.value, busy_ps, moved[each], longest[each].longest.name) for each, busy_ps in busy.items()
    )
