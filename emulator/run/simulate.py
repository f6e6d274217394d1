"""Simulation: the same chain, schedule and clocks as in training, without numerics."""

from __future__ import annotations

import dataclasses

import numpy as np

from ...comm.exchange.groups import step_sizes
from ...comm.exchange.timed import Attendance
from ...comm.host import run
from ..device.device import Epoch
from ..device.parameter import Sgd
from ..plan.plan import Plan
from .replicas import build_fleet
from .usage import Figures, count, figures


@dataclasses.dataclass(frozen=True)
class Simulation:
    """The virtual time at the end of each epoch since the start, and the figures of the whole run.

    `exchange_ps` is what a device spent on the exchange with other replicas, on average, all in all.
    """

    epoch_ends_ps: tuple[int, ...]
    figures: Figures
    exchange_ps: int = 0

    @property
    def exchange_share(self) -> float:
        """Of the run's time."""
        return self.exchange_ps / self.epoch_ends_ps[-1]


def simulate(plan: Plan, samples: int) -> Simulation:
    """Run `plan.config.epochs` epochs of `samples` samples for their times alone.

    Times do not depend on the micro-batches, so these are as large as the mini-batch.
    """
    config, totals = plan.config, step_sizes(samples, plan.config.batch)
    fleet = build_fleet(plan, 0, 1, (None, None), plan.batch, None)
    devices = [device for chain in fleet.chains for device in chain.devices]
    ends = []
    for _ in range(config.epochs):
        programs = []
        for replica, chain in enumerate(fleet.chains):
            own = len(plan.data_parallel.places(samples, config.batch, replica))
            schedule = plan.schedule(own, micro_batch=plan.batch)
            epoch = Epoch(schedule.micro_batches, schedule.step_samples, np.zeros(0, np.int64), Sgd(0, 0, 0), totals)
            programs += chain.train(schedule.programs(range(plan.devices)), epoch)
        run(programs)
        ends.append(max(device.clock.updated_ps for device in devices))
    counts = [count(device, plan.timing) for device in fleet.chains[0].devices]
    found = figures(plan.timing, counts, plan.steady.in_flight, ends[-1])
    spent_ps = sum(device.exchange.spent_ps for device in devices if isinstance(device.exchange, Attendance))
    return Simulation(tuple(ends), found, spent_ps // plan.nodes)
