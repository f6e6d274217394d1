"""Simulation: the same chain, schedule and clocks as in training, without numerics; of a pair, its
mini-batches.

A run has one segment unless boards die. A death ends a segment at the last checkpoint (the end of a
leg) that the chain has reached by then; what it computed after that is lost. The next segment
resumes from there, on a chain that is cut anew over the boards that are left, once these have
noticed the death and are loaded. Times are known without numbers, so all segments are known before
anything is trained. What faults cost in virtual time is the difference from the same run without
any.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol

from ...comm import Observer, Served, run
from ...comm.exchange import GradientExchange, TimedMember, step_sizes
from ..common import Figures, format_time_ps, html_table, number, percent, plain
from ..device import Epoch
from ..faults import BoardDeath, Faults
from ..plan import ChainPlan, PairPlan
from ..timing.pair import PairTimes
from .replicas import build_replicas
from .results import DeviceCounters, GivenSizes, Usage, usage_of
from .segments import Death, Leg, Position, Segment, replica_leg


class TimedRun:
    """The chains of a segment, without numerics.

    Where rows are streamed, times do not depend on the micro-batches, so these are as large as the
    mini-batch. `observer` is called with what engines, links and exchanges of the first replica
    serve. With `by_message`, each compressed message has a size of its own.
    """

    def __init__(
        self, segment: Segment, observer: Observer | None = None, *, by_message: bool = False
    ) -> None:
        plan = segment.plan
        self._segment = segment
        self._totals = step_sizes(segment.samples, plan.config.batch)
        self._replicas = build_replicas(
            segment, 0, 1, (None, None), plan.batch, None, by_message=by_message
        )
        if observer is not None:
            self._replicas.observe(observer)
        self._devices = [device for chain in self._replicas.chains for device in chain.devices]

    def give_sizes(self, sizes: GivenSizes) -> None:
        """Give the sizes of an epoch's compressed messages."""
        self._replicas.give_sizes(sizes)

    def leg(self, leg: Leg) -> int:
        """Run a leg of an epoch; return the virtual time in ps at its end, since the start of
        training.
        """
        plan, samples = self._segment.plan, self._segment.samples
        programs = self._replicas.serve(leg.last - leg.first)
        for replica, chain in enumerate(self._replicas.chains):
            _, schedule = replica_leg(
                plan, replica, samples, leg, plan.batch if plan.times_rows else None
            )
            of_leg = (
                schedule.micro_batches,
                schedule.step_samples,
                self._totals[leg.first : leg.last],
            )
            epoch = Epoch(*of_leg, timeline=chain.timeline(schedule))
            programs += chain.train(schedule.programs(range(plan.devices)), epoch)
        run(programs)
        return self._segment.start_ps + max(device.clock.updated_ps for device in self._devices)

    def usage(self) -> Usage:
        """Return what the first replica's devices and links have done so far in this segment."""
        plan, updated_ps = (
            self._segment.plan,
            max(device.clock.updated_ps for device in self._devices),
        )
        counters = [
            DeviceCounters.of(device.clock, plan.timing)
            for device in self._replicas.chains[0].devices
        ]
        return usage_of(plan.timing, counters, plan.steady.in_flight, updated_ps)

    @property
    def exchange_ps(self) -> int:
        """Time in ps that a device has spent on exchanges with other replicas, averaged over
        devices.
        """
        exchanges = (device.exchange for device in self._devices)
        spent_ps = sum(
            exchange.spent_ps
            for exchange in exchanges
            if isinstance(exchange, TimedMember | GradientExchange)
        )
        return spent_ps // self._segment.plan.nodes


def segments_of(plan: ChainPlan, samples: int) -> tuple[Segment, ...]:
    """Return the segments of a run with `samples` samples in an epoch, in order; found by
    simulation if boards die. Where formats change, it has one for each phase, which begins when the
    one before has ended.

    A board that dies after the end of the run changes nothing. Where no leg is finished between two
    deaths, the segment between them has none.
    """
    if plan.phases:
        phases = [phase for phase in plan.phases if phase.epochs < plan.config.epochs]
        begins = [0, *(phase.epochs for phase in phases)]
        plans = zip(
            [plan, *(phase.plan for phase in phases)], begins, [*begins[1:], None], strict=True
        )
        return tuple(Segment(own, samples, Position(begin), last=end) for own, begin, end in plans)
    segments, deaths = [Segment(plan, samples)], plan.faults.in_order
    for death, after in zip(deaths, plan.survivors if deaths else (), strict=True):
        ended = _ended(segments[-1], death, after.devices)
        if ended is None:
            break
        segments[-1] = dataclasses.replace(segments[-1], death=ended)
        segments.append(Segment(after, samples, ended.at, ended.back_ps))
    return tuple(segments)


def _ended(segment: Segment, death: BoardDeath, left: int) -> Death | None:
    """Return how a board's death ends a segment; None if the run ends before."""
    back_ps = max(segment.start_ps, death.at_ps + death.detect_ps + death.reload_ps)
    run, reached_ps = TimedRun(segment), segment.start_ps
    for epoch, leg in segment.legs():
        end_ps = run.leg(leg)
        if end_ps > death.at_ps:
            return Death(
                death,
                Position(epoch, leg.first),
                leg,
                left,
                max(0, death.at_ps - reached_ps),
                back_ps,
            )
        reached_ps = end_ps
    return None


@dataclasses.dataclass(frozen=True)
class Simulation(Figures):
    """A timing-only run of a plan.

    `epoch_ends_ps` holds the virtual time from the start to the end of each epoch; `samples` is the
    number of samples in an epoch. `exchange_ps` is the time that a device spent on exchanges with
    other replicas, averaged over devices. If boards die, the run has several segments, and `usage`
    is that of the last one.
    """

    _figures = "replicas virtual_time_ps epoch_ends_ps exchange_ps exchange_share images_per_s"

    plan: ChainPlan
    samples: int
    epoch_ends_ps: tuple[int, ...]
    usage: Usage
    exchange_ps: int = 0
    segments: tuple[Segment, ...] = ()

    @property
    def virtual_time_ps(self) -> int:
        """Virtual time of the whole run."""
        return self.epoch_ends_ps[-1]

    @property
    def images_per_s(self) -> float:
        """Rate of the whole run, including filling and draining."""
        return self.samples * len(self.epoch_ends_ps) / (self.virtual_time_ps * 1e-12)

    @property
    def replicas(self) -> int:
        """Number of chains, which train together."""
        return self.plan.replicas

    @property
    def exchange_share(self) -> float:
        """Share of the run's time that the exchange took."""
        return self.exchange_ps / self.virtual_time_ps

    def to_dict(self) -> dict[str, Any]:
        """Return the configuration, the usage of devices and links, and figures under the names of
        the attributes, as JSON's values; `emuchain simulate --json` prints them, and more.
        """
        used: dict[str, Any] = plain(self.usage)
        config = {**self.plan.config.model_dump(), "devices": self.plan.devices}
        said = {"config": plain({**config, "samples": self.samples}), **super().to_dict()}
        return {**said, "devices": used["devices"], "links": used["links"]}

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
        return html_table(f"Simulation of {self.plan.title}", rows)


@dataclasses.dataclass(frozen=True)
class PairSimulation(Figures):
    """A timing-only run of a plan on a GPU, alone or with an FPGA; its mini-batches follow one
    another.
    """

    plan: PairPlan

    @property
    def samples(self) -> int:
        """Number of samples in an epoch."""
        return self.plan.samples

    @property
    def times(self) -> PairTimes:
        """The timeline of a mini-batch: tasks, and how long each resource is busy."""
        return self.plan.times

    @property
    def epoch_ends_ps(self) -> tuple[int, ...]:
        """Virtual time from the start to the end of each epoch."""
        return self.plan.epoch_ends_ps

    @property
    def virtual_time_ps(self) -> int:
        """Virtual time of the whole run."""
        return self.epoch_ends_ps[-1]

    @property
    def images_per_s(self) -> float:
        """Rate of the whole run, of samples of any kind."""
        return self.samples * len(self.epoch_ends_ps) / (self.virtual_time_ps * 1e-12)

    def to_dict(self) -> dict[str, Any]:
        """Return what `emuchain simulate --json` prints (docs/running.md)."""
        return self.plan.to_dict()

    def __str__(self) -> str:
        return str(self.plan)

    def __repr__(self) -> str:
        return (
            f"<PairSimulation of {self._run} in {format_time_ps(self.virtual_time_ps)},"
            f" {self._rate}>"
        )

    def _repr_html_(self) -> str:
        times = self.times
        rows = [
            [f"{self.plan.network.sample_noun}s", f"{len(self.epoch_ends_ps)} x {self.samples}"],
            ["virtual time", f"{format_time_ps(self.virtual_time_ps)} ({self.virtual_time_ps} ps)"],
            [
                "mini-batch",
                (
                    f"{format_time_ps(times.mini_batch_ps)}, of it FW"
                    f" {format_time_ps(times.forward_ps)}"
                ),
            ],
            ["rate", self._rate],
            *(
                [resource.value, f"busy {percent(use.busy_ps / times.mini_batch_ps)}"]
                for resource, use in times.busy.items()
            ),
        ]
        return html_table(f"Simulation of {self.plan.title}", rows)

    @property
    def _run(self) -> str:
        return f"{len(self.epoch_ends_ps)} x {self.samples} {self.plan.network.sample_noun}s"

    @property
    def _rate(self) -> str:
        return f"{number(self.images_per_s)} {self.plan.network.sample_noun}s/s"


class Trace(Protocol):
    """A file with the spans of what devices and links serve in a run on chains; as a context
    manager it locks it.
    """

    def __enter__(self) -> Any:
        """Check that the file can be written, and keep others from writing it."""

    def __exit__(self, *_: object) -> None:
        """Let others write the file."""

    def recorder(self, plan: ChainPlan, samples: int) -> Any:
        """Return the observer of a run with `samples` samples in an epoch, over all replicas."""

    def write(self, plan: ChainPlan, samples: int, recorders: Sequence[Any]) -> None:
        """Write the trace from the recorders of all ranks."""


def both(first: Observer | None, second: Observer | None) -> Observer | None:
    """Return an observer that calls those that there are; None where there are none."""
    if first is None or second is None:
        return first or second

    def call(served: Served) -> None:
        first(served)
        second(served)

    return call


def simulate(
    plan: ChainPlan,
    samples: int,
    observer: Observer | None = None,
    sizes: Sequence[GivenSizes] = (),
    trace: Trace | None = None,
) -> Simulation:
    """Run `plan.config.epochs` epochs of `samples` samples for timing only; write `trace`.

    `observer` is called with what engines, links and exchanges of the first replica serve. `sizes`
    are those of compressed messages, for each epoch; without them, messages have the size that the
    codec expects.

    Raises:
        InputError: the trace has no sample of the run, or cannot be written.
    """
    recorder = None if trace is None else trace.recorder(plan, samples)
    segments, ends = segments_of(plan, samples), list[int]()
    for segment in segments:
        start_ps = max(segment.start_ps, *ends[-1:], 0)
        begun = dataclasses.replace(segment, start_ps=start_ps)
        timed = TimedRun(begun, both(observer, recorder), by_message=bool(sizes))
        for epoch, leg in segment.legs():
            # Sizes are those of a whole epoch, which its first leg takes for all of them.
            if sizes and leg.first == 0:
                timed.give_sizes(sizes[epoch])
            end_ps = timed.leg(leg)
            if leg == segment.all_legs[-1]:
                ends.append(end_ps)
    if trace is not None:
        trace.write(plan, samples, [recorder])
    return Simulation(plan, samples, tuple(ends), timed.usage(), timed.exchange_ps, segments)


@dataclasses.dataclass(frozen=True)
class FaultCosts:
    """The virtual time in ps of a run without faults, with all, and with each alone that costs
    time.

    Each has its description. All boards that die count as one fault; `deaths` are those within the
    run.
    """

    without_ps: int
    with_ps: int
    alone_ps: tuple[tuple[str, int], ...]
    deaths: tuple[Death, ...] = ()

    @property
    def cost_ps(self) -> int:
        """What all faults cost."""
        return self.with_ps - self.without_ps

    @property
    def share(self) -> float:
        """The cost over the time without faults."""
        return self.cost_ps / self.without_ps

    @property
    def each(self) -> list[tuple[str, int]]:
        """Each fault, and what it costs alone."""
        return [(what, alone_ps - self.without_ps) for what, alone_ps in self.alone_ps]


def fault_costs(
    plan: ChainPlan, samples: int, with_ps: int, sizes: Sequence[GivenSizes] = ()
) -> FaultCosts:
    """Return what the faults of a plan cost in a run that took `with_ps`, by simulation.

    Args:
        plan: with faults.
        samples: in an epoch.
        with_ps: virtual time of the run.
        sizes: those of compressed messages, for each epoch, as for `simulate`.
    """

    def time_ps(faulty: ChainPlan) -> int:
        return simulate(faulty, samples, sizes=sizes).virtual_time_ps

    faults = plan.faults
    if not faults.in_time:
        return FaultCosts(with_ps, with_ps, ())
    without_ps = time_ps(plan.with_faults(Faults()))
    deaths = tuple(
        segment.death for segment in segments_of(plan, samples) if segment.death is not None
    )
    kinds = [(str(fault), faults.alone(fault)) for fault in faults.slowing]
    if faults.deaths:
        kinds.append((" and ".join(map(str, faults.in_order)), faults.deaths_alone))
    if len(kinds) == 1:
        return FaultCosts(without_ps, with_ps, ((kinds[0][0], with_ps),), deaths)
    alone = tuple((what, time_ps(plan.with_faults(one))) for what, one in kinds)
    return FaultCosts(without_ps, with_ps, alone, deaths)
