"""Simulation: the same chain, schedule and clocks as in training, without numerics."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ...comm import Observer, run
from ...comm.exchange import GradientExchange, TimedMember, step_sizes
from ..common import format_time_ps, html_table
from ..device import Epoch
from ..plan import Plan, describe_devices
from .legs import legs_of, replica_leg
from .replicas import build_replicas
from .sizes import GivenSizes
from .usage import DeviceCounters, Usage, usage_of


@dataclasses.dataclass(frozen=True)
class Simulation:
    """A timing-only run of a plan.

    `epoch_ends_ps` holds the virtual time from the start to the end of each epoch; `samples` is the number of samples
    in an epoch. `exchange_ps` is the time that a device spent on exchanges with other replicas, averaged over devices.
    """

    plan: Plan
    samples: int
    epoch_ends_ps: tuple[int, ...]
    usage: Usage
    exchange_ps: int = 0

    @property
    def virtual_time_ps(self) -> int:
        """Virtual time of the whole run."""
        return self.epoch_ends_ps[-1]

    @property
    def images_per_s(self) -> float:
        """Rate of the whole run, including filling and draining."""
        return self.samples * len(self.epoch_ends_ps) / (self.virtual_time_ps * 1e-12)

    @property
    def exchange_share(self) -> float:
        """Share of the run's time that the exchange took."""
        return self.exchange_ps / self.virtual_time_ps

    @property
    def _nouns(self) -> str:
        return f"{self.plan.network.sample_noun}s"

    def __repr__(self) -> str:
        return (
            f"<Simulation of {len(self.epoch_ends_ps)} x {self.samples} {self._nouns} in"
            f" {format_time_ps(self.virtual_time_ps)}, {self.images_per_s:.1f} {self._nouns}/s>"
        )

    def _repr_html_(self) -> str:
        rows = [
            [self._nouns, f"{len(self.epoch_ends_ps)} x {self.samples}"],
            ["virtual time", f"{format_time_ps(self.virtual_time_ps)} ({self.virtual_time_ps} ps)"],
            ["rate, filling and draining included", f"{self.images_per_s:.1f} {self._nouns}/s"],
        ]
        if self.exchange_ps:
            rows.append(["exchange of gradients", f"{100 * self.exchange_share:.1f} % of the time"])
        if self.usage.links:
            busiest = max(self.usage.links, key=lambda link: link.utilisation)
            used = f"{busiest.sender} -> {busiest.receiver}, {100 * busiest.utilisation:.1f} %"
            rows.append(["busiest link", used])
        return html_table(f"Simulation of {self.plan.network.name} on {describe_devices(self.plan)}", rows)


def simulate(
    plan: Plan, samples: int, observer: Observer | None = None, sizes: Sequence[GivenSizes] = ()
) -> Simulation:
    """Run `plan.config.epochs` epochs of `samples` samples for timing only.

    Where rows are streamed, times do not depend on the micro-batches, so these are as large as the mini-batch.
    `observer` is called with what engines, links and exchanges of the first replica serve. `sizes` are those of
    compressed messages, for each epoch; without them, messages have the size that the codec expects.
    """
    config, totals = plan.config, step_sizes(samples, plan.config.batch)
    replicas = build_replicas(plan, 0, 1, (None, None), plan.batch, None, by_message=bool(sizes))
    if observer is not None:
        replicas.observe(observer)
    devices = [device for chain in replicas.chains for device in chain.devices]
    ends = []
    for number in range(config.epochs):
        if sizes:
            replicas.give_sizes(sizes[number])
        for leg in legs_of(len(totals), config.checkpoint_every):
            programs = replicas.serve(leg.last - leg.first)
            for replica, chain in enumerate(replicas.chains):
                _, schedule = replica_leg(plan, replica, samples, leg, plan.batch if plan.times_rows else None)
                of_leg = schedule.micro_batches, schedule.step_samples, totals[leg.first : leg.last]
                epoch = Epoch(*of_leg, course=plan.course(schedule))
                programs += chain.train(schedule.programs(range(plan.devices)), epoch)
            run(programs)
        ends.append(max(device.clock.updated_ps for device in devices))
    counters = [DeviceCounters.of(device.clock, plan.timing) for device in replicas.chains[0].devices]
    usage = usage_of(plan.timing, counters, plan.steady.in_flight, ends[-1])
    spent_ps = sum(
        device.exchange.spent_ps for device in devices if isinstance(device.exchange, TimedMember | GradientExchange)
    )
    return Simulation(plan, samples, tuple(ends), usage, spent_ps // plan.nodes)
