"""This rank's part of a run's chains: it trains a leg of an epoch at a time, and evaluates after each epoch."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...comm import Pump, run
from ...comm.exchange import Traffic, step_sizes
from ...kernels import Arena
from ...launch import Ranks
from ..data import Dataset
from ..device import (
    Bpram,
    DeviceNumerics,
    Epoch,
    HurtNumerics,
    Learnt,
    Rules,
    Tally,
    epoch_order,
    numerics_of,
)
from ..mapping import BalancedParameters, DeviceStreams
from ..network import Layer
from ..plan import Plan, check_samples
from ..schedule import cut_samples
from .ends import Ends
from .hurt import soft_errors
from .layer_states import LayerState, deal_state, gathered_state
from .layer_weights import gathered_weights
from .legs import Leg, Position, replica_leg
from .record import (
    DeviceCounters,
    EpochResult,
    Exchanged,
    History,
    SoFar,
    StepReports,
    StepTable,
    Usage,
    Weights,
    usage_of,
)
from .replicas import build_replicas
from .segment import Segment

_EVALUATION_MICRO_BATCH = 16  # at least; larger ones gain little and take memory
_EVALUATION_ROUND = 4  # micro-batches for each rank


@dataclasses.dataclass(frozen=True)
class _MakeNumerics:
    """Factory of the numerics of a replica's devices, from the plan's network and seed."""

    segment: Segment
    replica: int

    def __call__(self, streams: DeviceStreams, blocks: Sequence[BalancedParameters], arena: Arena) -> DeviceNumerics:
        start, seed = self.segment.plan.network.start, self.segment.plan.config.seed
        slices = [numerics_of(part, start, seed, arena) for part in streams.slices]
        stored = {number: Bpram(blocks[number], start, seed, arena) for number in streams.stored}
        if self.segment.plan.config.rtl_device == streams.device:
            from ..rtl import rtl_numerics  # which few runs need

            return rtl_numerics(self.segment.plan, streams, slices)
        errors = soft_errors(self.segment, self.replica, streams.device)
        if errors is None:
            return DeviceNumerics(streams, slices, blocks, stored)
        return HurtNumerics(errors, streams, slices, blocks, stored)


@dataclasses.dataclass(frozen=True)
class _RankResult:
    """The end of an epoch on one rank: the test, and the exchange so far."""

    tested: Tally
    exchanged: Exchanged


class Trainer:
    """This rank's part of all replicas' chains in the first of some segments, and the data at their ends."""

    def __init__(self, segments: Sequence[Segment], data: Dataset, ranks: Ranks) -> None:
        segment, *self._later = segments
        plan, config = segment.plan, segment.plan.config
        self.plan, self.ranks = plan, ranks
        self.so_far, self.history = SoFar(), History()
        self._segment, self._data, self._samples = segment, data, data.n_train
        self._step_sizes, self._from_ps = step_sizes(data.n_train, config.batch), segment.start_ps
        most = max(config.micro_batch, _EVALUATION_MICRO_BATCH)
        if config.rtl_device is not None:
            from ..rtl import check_device

            check_device(plan)
        check_samples(config, plan.data_parallel.replicas, data.n_train)
        comms = ranks.comm, ranks.exchange_comm
        self.replicas = ranks.transport = build_replicas(
            segment, ranks.rank, ranks.size, comms, most, functools.partial(_MakeNumerics, segment)
        )
        self._pumps: list[Pump] = [*self.replicas.pumps] if ranks.comm is None else [*self.replicas.pumps, ranks]
        self._ends = [
            Ends.of(chain, data, plan.network.entry, config.label_smoothing) for chain in self.replicas.chains
        ]
        self._exchanged = Exchanged()
        self._test_batches = cut_samples(data.n_test, max(data.n_test, 1), most)
        ranks.gather(None)  # all are ready
        self.started_s = time.perf_counter()

    @classmethod
    def of(cls, plan: Plan, data: Dataset, ranks: Ranks) -> Trainer:
        """Return the trainer of a plan whose boards all live."""
        return cls([Segment(plan, data.n_train)], data, ranks)

    @property
    def legs(self) -> list[Leg]:
        """See `epochs.Trainer`."""
        return self._segment.all_legs

    @property
    def began(self) -> tuple[Position, int]:
        """See `epochs.Trainer`."""
        return self._segment.begin, self._segment.start_ps

    def at(self, position: Position) -> Trainer:
        """See `epochs.Trainer`: a board has died, and the ones that are left have the weights of this one."""
        reached = [place for place, segment in enumerate(self._later) if segment.begin <= position]
        return self._handed_over(self._later[reached[-1] :]) if reached else self

    def begin_at(self, position: Position, now_ps: int) -> Trainer:
        """See `epochs.Trainer`."""
        if (position, now_ps) == self.began:
            return self
        self.close()
        for place, segment in enumerate(self._later):
            if (segment.begin, segment.start_ps) == (position, now_ps):
                return Trainer(self._later[place:], self._data, self.ranks)
        return Trainer([Segment(self.plan, self._samples, position, now_ps)], self._data, self.ranks)

    def _handed_over(self, segments: Sequence[Segment]) -> Trainer:
        """Return the trainer of the next segments, with the arrays and the history of this one."""
        self.close()
        after = Trainer(segments, self._data, self.ranks)
        for layer in self.plan.network.layers:
            for replica, (held, taken) in enumerate(zip(self.learnt(), after.learnt(), strict=True)):
                state = gathered_state(self.ranks, layer, held)
                kinds = sorted({kind for arrays in state.values() for kind in arrays})  # before an update: values alone
                deal_state(self.ranks, layer, taken, functools.partial(_of_state, state), kinds, replica)
        after.so_far, after.history, after.started_s = self.so_far, self.history, self.started_s
        return after

    @np.errstate(over="ignore", invalid="ignore")  # divergence is detected by the loss
    def train(self, number: int, leg: Leg) -> None:
        """See `epochs.Trainer`."""
        config, rules = self.plan.config, self._rules(number)
        order = epoch_order(config.seed, number, self._samples)
        totals, flips = self._step_sizes[leg.first : leg.last], bool(self.plan.faults.flips)
        reports, programs = StepReports(self.ranks, rules, leg.first, self._from_ps, flips=flips), []
        for replica, (chain, ends) in enumerate(zip(self.replicas.chains, self._ends, strict=True)):
            places, schedule = replica_leg(self.plan, replica, self._samples, leg)
            ends.attach_training(chain, order[places], number)
            numbers = places + number * self._samples
            epoch = Epoch(
                *(schedule.micro_batches, schedule.step_samples, totals, rules.of_leg(leg.first), numbers),
                chain.course(schedule),
            )
            own = schedule.programs([*chain.by_device])
            programs += chain.train(own, epoch, reports.of(replica), ahead=self.ranks.idles)
        run([*programs, *self.replicas.serve(len(totals))], self._pumps, self.ranks.settling, self.ranks.watchdog)
        for of_rank in self.ranks.gather((reports.shares, self.replicas.take_sizes())):
            self.so_far.add(*of_rank)

    @np.errstate(over="ignore", invalid="ignore")
    def finish(self, number: int) -> EpochResult | None:
        """See `epochs.Trainer`."""
        tested, usage = self.evaluate(), self.usage()
        results = self.ranks.gather(_RankResult(tested, self.replicas.exchanged()))
        if self.ranks.rank > 0:
            return None
        before, self._exchanged = self._exchanged, sum((result.exchanged for result in results), Exchanged())
        so_far, self.so_far = self.so_far, SoFar()
        steps = so_far.steps
        return EpochResult(
            number,
            self._rules(number).last_rate,
            sum((step.tally for step in steps), Tally()),
            sum((result.tested for result in results), Tally()),
            usage.virtual_time_ps + self._from_ps,
            time.perf_counter() - self.started_s,
            usage,
            self._exchanged.since(before),
            so_far.sizes,
            steps=StepTable.of(steps),
        )

    def _rules(self, number: int) -> Rules:
        return Rules(self.plan.config, number, len(self._step_sizes))

    def usage(self) -> Usage:
        """See `epochs.Trainer`."""
        timing, devices = self.plan.timing, self.replicas.chains[0].devices
        counters = [DeviceCounters.of(device.clock, timing) for device in devices]
        of_ranks = self.ranks.gather((counters, self._updated_ps()))
        if self.ranks.rank > 0:
            return Usage(0, (), ())
        counters = [counted for of_rank, _ in of_ranks for counted in of_rank]
        return usage_of(timing, counters, self.plan.steady.in_flight, max(updated_ps for _, updated_ps in of_ranks))

    def _updated_ps(self) -> int:
        chains = self.replicas.chains
        return max((device.clock.updated_ps for chain in chains for device in chain.devices), default=0)

    def epoch(self, number: int) -> EpochResult | None:
        """Train an epoch and evaluate; return the result on rank 0, else None."""
        for leg in self.legs:
            self.train(number, leg)
        return self.finish(number)

    def evaluate(self) -> Tally:
        """Test on the first replica, as all have the same weights; return what is known on this rank."""
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

    def learnt(self) -> list[list[Learnt]]:
        """See `epochs.Trainer`."""
        by_chain = ([device.numerics for device in chain.devices] for chain in self.replicas.chains)
        return [[of for each in numerics if each is not None for of in each.learnt] for numerics in by_chain]

    def clocks(self) -> dict[str, Any]:
        """See `epochs.Trainer`."""
        traffic, spent_ps = dataclasses.asdict(self._exchanged.traffic), self._exchanged.spent_ps
        before = {"exchanged": {"traffic": traffic, "spent_ps": spent_ps}} if self.ranks.rank == 0 else {}
        return {**self.replicas.clocks(), **before}

    def restore_clocks(self, state: Mapping[str, Any]) -> None:
        """See `epochs.Trainer`."""
        self.replicas.restore_clocks(state)
        before = state["exchanged"]
        self._exchanged = Exchanged(Traffic(**before["traffic"]), before["spent_ps"])

    def now_ps(self, position: Position) -> int:
        """See `epochs.Trainer`."""
        return self._updated_ps() + self._from_ps


def _of_state(
    state: LayerState, layer: Layer, replica: int, name: str, kind: str, shape: tuple[int, ...]
) -> NDArray[np.float32]:
    return state[name][kind]
