"""Simulation: the same chain, schedule and clocks as in training, without numerics."""

from __future__ import annotations

import dataclasses

import numpy as np

from ..comm.host import run
from .chain import Placement, Wiring, build
from .device.device import Epoch
from .device.parameter import Sgd
from .figures import Figures, count, figures
from .plan import Plan


@dataclasses.dataclass(frozen=True)
class Simulation:
    """The virtual time at the end of each epoch since the start, and the figures of the whole run."""

    epoch_ends_ps: tuple[int, ...]
    figures: Figures


def simulate(plan: Plan, samples: int) -> Simulation:
    """Run `plan.config.epochs` epochs of `samples` samples for their times alone.

    Times do not depend on the micro-batches, so these are as large as the mini-batch.
    """
    config = plan.config
    wiring = Wiring(Placement(plan.devices, 1), 0, None, throttled=False, most_samples=config.batch, with_data=False)
    chain = build(plan.timing, wiring, None)
    ends = []
    for _ in range(config.epochs):
        schedule = plan.schedule(samples, micro_batch=config.batch)
        epoch = Epoch(schedule.micro_batches, schedule.step_samples, np.zeros(0, np.int64), Sgd(0, 0, 0))
        programs = schedule.programs(range(plan.devices))
        run(chain.train(programs, epoch))
        ends.append(max(device.clock.updated_ps for device in chain.devices))
    counts = [count(device, plan.timing) for device in chain.devices]
    return Simulation(tuple(ends), figures(plan.timing, counts, plan.steady.in_flight))
