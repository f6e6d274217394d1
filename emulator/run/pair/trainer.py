"""Training on a GPU, alone or with an FPGA: this rank's part of it."""

from __future__ import annotations

import collections
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....comm import Pump, run
from ....comm.exchange import step_sizes
from ....launch import Ranks
from ...data import Dataset
from ...device import Epoch, Learnt, Rules, Tally, epoch_order, evaluate_on_gpu, train_on_gpu
from ...pair import Content, PairKey, Resource, pair_streams
from ...plan import PairPlan
from ...schedule import cut_samples
from ..ends import Ends
from ..layer_weights import gathered_weights
from ..legs import Leg, Position, legs_of
from ..record import EpochResult, History, ResourceUse, SoFar, StepReports, StepTable, Usage, Weights
from .devices import Carried, build_pair

_EVALUATION_MICRO_BATCH = 16


class PairTrainer:
    """This rank's part of a pair, and the data of the GPU."""

    def __init__(self, plan: PairPlan, data: Dataset, ranks: Ranks) -> None:
        self.plan, self.ranks = plan, ranks
        self.so_far, self.history = SoFar(), History()
        self._samples, config = data.n_train, plan.config
        most = max(config.micro_batch, _EVALUATION_MICRO_BATCH)
        self.devices = ranks.transport = build_pair(plan, ranks, config.micro_batch)
        self._pumps: list[Pump] = [*self.devices.pumps] if ranks.comm is None else [*self.devices.pumps, ranks]
        self._ends = Ends.of(self.devices, data, plan.network.entry, config.label_smoothing)
        self._test_batches = cut_samples(data.n_test, max(data.n_test, 1), most)
        self._sizes, self._from_ps = step_sizes(self._samples, config.batch), 0
        self._began = Position(), 0
        self._step_ps = {size: plan.times_of(size).mini_batch_ps for size in set(self._sizes)}
        self._carried: collections.Counter[PairKey] = collections.Counter()
        ranks.gather(None)  # all are ready
        self.started_s = time.perf_counter()

    @property
    def legs(self) -> list[Leg]:
        """See `epochs.Trainer`."""
        return legs_of(len(self._sizes), self.plan.config.checkpoint_every)

    @np.errstate(over="ignore", invalid="ignore")  # divergence is detected by the loss
    def train(self, number: int, leg: Leg) -> None:
        """See `epochs.Trainer`."""
        plan, config = self.plan, self.plan.config
        places = leg.samples_of(config.batch, self._samples)
        order = epoch_order(config.seed, number, self._samples)[places]
        rules = self._rules(number)
        sizes = self._sizes[leg.first : leg.last]
        reports = StepReports(self.ranks, rules, leg.first)
        report = reports.of(0)
        now_ps = self.now_ps(Position(number, leg.first))

        def on_update(step: int, tally: Tally) -> None:
            nonlocal now_ps
            now_ps += self._step_ps[sizes[step]]
            report(step, tally, now_ps)

        schedule = plan.schedule(len(places))
        self._ends.attach_training(self.devices, order, number)
        numbers = np.array(places) + number * self._samples
        epoch = Epoch(schedule.micro_batches, schedule.step_samples, sizes, rules.of_leg(leg.first), numbers)
        programs = []
        if self.devices.gpu is not None:
            programs.append(train_on_gpu(self.devices.gpu, schedule.programs([0])[0], epoch, on_update))
        if self.devices.fpga is not None:
            programs.append(self.devices.fpga.train(schedule.programs([0])[0], schedule.micro_batches))
        run(programs, self._pumps, self.ranks.settling, self.ranks.watchdog)
        for of_rank, carried in self.ranks.gather((reports.shares, self.devices.take_carried())):
            self.so_far.add(of_rank, {})
            self._carried.update(carried)

    @np.errstate(over="ignore", invalid="ignore")
    def finish(self, number: int) -> EpochResult | None:
        """See `epochs.Trainer`."""
        results = self.ranks.gather(self._evaluate())
        if self.ranks.rank > 0:
            return None
        steps, self.so_far = self.so_far.steps, SoFar()
        end_ps = self.now_ps(Position(number + 1))
        return EpochResult(
            number,
            self._rules(number).last_rate,
            sum((step.tally for step in steps), Tally()),
            sum(results, Tally()),
            end_ps,
            time.perf_counter() - self.started_s,
            Usage(end_ps, (), ()),
            resources=_resources(self.plan, self._sizes, number + 1, self._carried),
            steps=StepTable.of(steps),
        )

    def _rules(self, number: int) -> Rules:
        return Rules(self.plan.config, number, len(self._sizes))

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
        self.devices.close()

    def now_ps(self, position: Position) -> int:
        """See `epochs.Trainer`."""
        of_epoch = sum(self._step_ps[size] for size in self._sizes[: position.step])
        return self._from_ps + position.epoch * self.plan.epoch_ps(self._samples) + of_epoch

    @property
    def began(self) -> tuple[Position, int]:
        """See `epochs.Trainer`."""
        return self._began

    def begin_at(self, position: Position, now_ps: int) -> PairTrainer:
        """See `epochs.Trainer`."""
        self._began = position, now_ps
        self._from_ps += now_ps - self.now_ps(position)
        return self

    def at(self, position: Position) -> PairTrainer:
        """See `epochs.Trainer`."""
        return self

    def usage(self) -> Usage:
        """See `epochs.Trainer`; a pair has resources in place of it."""
        return Usage(0, (), ())

    def learnt(self) -> list[list[Learnt]]:
        """See `epochs.Trainer`."""
        return [[] if self.devices.gpu is None else self.devices.gpu.learnt]

    def clocks(self) -> dict[str, Any]:
        """See `epochs.Trainer`; times follow from the number of mini-batches, so there are only bytes."""
        return {"carried": self._carried_so_far} if self.ranks.rank == 0 else {}

    @property
    def _carried_so_far(self) -> list[tuple[int, int, str, int]]:
        return [(key.layer, key.direction, key.content.value, size) for key, size in self._carried.items()]

    def restore_clocks(self, state: Mapping[str, Any]) -> None:
        """See `epochs.Trainer`."""
        carried = {PairKey(layer, place, Content(of)): size for layer, place, of, size in state["carried"]}
        self._carried = collections.Counter(carried)


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
