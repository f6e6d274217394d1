"""A segment's chains with clocks alone, run leg by leg."""

from __future__ import annotations

from ...comm import Observer, run
from ...comm.exchange import GradientExchange, TimedMember, step_sizes
from ..device import Epoch
from .legs import Leg, replica_leg
from .record import DeviceCounters, GivenSizes, Usage, usage_of
from .replicas import build_replicas
from .segment import Segment


class TimedRun:
    """The chains of a segment, without numerics.

    Where rows are streamed, times do not depend on the micro-batches, so these are as large as the mini-batch.
    `observer` is called with what engines, links and exchanges of the first replica serve. With `by_message`, each
    compressed message has a size of its own.
    """

    def __init__(self, segment: Segment, observer: Observer | None = None, *, by_message: bool = False) -> None:
        plan = segment.plan
        self._segment = segment
        self._totals = step_sizes(segment.samples, plan.config.batch)
        self._replicas = build_replicas(segment, 0, 1, (None, None), plan.batch, None, by_message=by_message)
        if observer is not None:
            self._replicas.observe(observer)
        self._devices = [device for chain in self._replicas.chains for device in chain.devices]

    def give_sizes(self, sizes: GivenSizes) -> None:
        """Give the sizes of an epoch's compressed messages."""
        self._replicas.give_sizes(sizes)

    def leg(self, leg: Leg) -> int:
        """Run a leg of an epoch; return the virtual time in ps at its end, since the start of training."""
        plan, samples = self._segment.plan, self._segment.samples
        programs = self._replicas.serve(leg.last - leg.first)
        for replica, chain in enumerate(self._replicas.chains):
            _, schedule = replica_leg(plan, replica, samples, leg, plan.batch if plan.times_rows else None)
            of_leg = schedule.micro_batches, schedule.step_samples, self._totals[leg.first : leg.last]
            epoch = Epoch(*of_leg, course=chain.course(schedule))
            programs += chain.train(schedule.programs(range(plan.devices)), epoch)
        run(programs)
        return self._segment.start_ps + max(device.clock.updated_ps for device in self._devices)

    def usage(self) -> Usage:
        """Return what the first replica's devices and links have done so far in this segment."""
        plan, updated_ps = self._segment.plan, max(device.clock.updated_ps for device in self._devices)
        counters = [DeviceCounters.of(device.clock, plan.timing) for device in self._replicas.chains[0].devices]
        return usage_of(plan.timing, counters, plan.steady.in_flight, updated_ps)

    @property
    def exchange_ps(self) -> int:
        """Time in ps that a device has spent on exchanges with other replicas, averaged over devices."""
        exchanges = (device.exchange for device in self._devices)
        spent_ps = sum(each.spent_ps for each in exchanges if isinstance(each, TimedMember | GradientExchange))
        return spent_ps // self._segment.plan.nodes
