"""The exploration: every schedule and micro-batch on the cut that suits it, timed; which is best,
by what, until when.

Candidates are timed as runs are, on the timeline of their schedule. Data parallelism is one, too:
every device trains the whole network.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ...comm import Interconnect, Topology
from ...comm.exchange import ring_ps
from ...kernels.number import FP32
from ..cluster import CHAIN, Link
from ..common import InputError
from ..mapping import TiedWeights
from ..profile import DoesNotFit, Stages
from ..schedule import (
    Backward,
    Fold,
    Machine,
    PipelineKind,
    Shape,
    StageCosts,
    Transport,
    kept_micro_batches,
)
from ..timing import PipelineResult, UpdateWaits, Ways, least_time_ps, schedule_of, time_shape
from .partition import Demand, Partition, Pieces, all_cuts_ps, cuts_between_layers_ps, partition


@dataclasses.dataclass(frozen=True)
class Wires:
    """The links between neighbours of a chain or another topology, and that over which all exchange
    gradients.
    """

    links: tuple[Link, ...]
    interconnect: Interconnect
    topology: Topology = CHAIN

    @property
    def latency_ps(self) -> int:
        """The longest latency of a link."""
        return max((link.latency_ps for link in self.links), default=0)

    def times(self, factor: float) -> Wires:
        """Return the same with a multiple of all bandwidths."""
        links = (
            dataclasses.replace(link, bandwidth_mbps=_times(link.bandwidth_mbps, factor))
            for link in self.links
        )
        over = self.interconnect
        faster = dataclasses.replace(over, bandwidth_mbps=_times(over.bandwidth_mbps, factor))
        return dataclasses.replace(self, links=tuple(links), interconnect=faster)

    def update_waits(self, tied: Sequence[TiedWeights]) -> UpdateWaits:
        """Return what updates of the stages wait for, of which some share `tied` weights."""
        count = len(self.links) + 1
        ways = Ways(Fold(count), self.topology, self.links.__getitem__)
        return UpdateWaits(count, tied, None, [ways.bursts(tied, stage) for stage in range(count)])


def _times(bandwidth_mbps: int, factor: float) -> int:
    return max(1, round(bandwidth_mbps * factor))


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A way to train a mini-batch, and its time in ps; None, and the reason why, if it does not
    fit.

    Of a pipeline there are the cut and the timeline, and how much later than its last action the
    last update is made that waits for gradients of tied weights; of data parallelism the
    micro-batches of each device, the time of the slowest one and that of the exchange.
    """

    name: str
    samples: int
    micro_batches: int
    time_ps: int | None = None
    why_not: str = ""
    partition: Partition | None = None
    timeline: PipelineResult | None = None
    dealt: tuple[int, ...] = ()
    compute_ps: int = 0
    exchange_ps: int = 0
    tied_ps: int = 0
    limit: str = ""

    @property
    def feature_bytes(self) -> int:
        """Bytes of features on all devices at their peak."""
        if self.partition is None or self.timeline is None:
            return 0
        kept = zip(self.timeline.features, self.partition.costs, strict=True)
        return int(sum(count * costs.feature_bytes for count, costs in kept))

    @property
    def rank(self) -> tuple[bool, int, bool, float, int, str, int]:
        """The order of candidates, the best first.

        Of equal times that with the lower send peak comes first, then that with fewer features,
        then by name.
        """
        peak = float(self.timeline.send_peak) if self.timeline is not None else 0.0
        return (
            self.time_ps is None,
            self.time_ps or 0,
            self.timeline is None,
            peak,
            self.feature_bytes,
            self.name,
            self.samples,
        )


def pipelined(
    kind: PipelineKind,
    machine: Machine,
    stages: Stages,
    wires: Wires,
    micro_batches: int,
    *,
    whole_layers: bool = False,
    better_than_ps: int | None = None,
    cut_as: Partition | None = None,
) -> Candidate | None:
    """Return a schedule as a candidate, on the cut that suits it, or on a given one.

    Args:
        kind: the kind of schedule.
        machine: how the devices work.
        stages: what pieces of the network take for a micro-batch.
        wires: links and interconnect.
        micro_batches: their number in a mini-batch.
        whole_layers: whether layers stay whole.
        cut_as: the cut; without it, it is searched.
        better_than_ps: return None, without a timeline, if its cut cannot be as fast as this.

    Raises:
        InputError: there are more devices than layers.
    """
    machine = dataclasses.replace(machine, latency_ps=wires.latency_ps)
    candidate = Candidate(kind.name, stages.samples, micro_batches)
    kept = _kept(kind, machine, stages.devices, micro_batches)
    overlaps = machine.transport is Transport.HIDDEN or kind.overlaps
    try:
        demand = Demand(kept, overlaps)
        if cut_as is None:
            cut = partition(stages, wires.links, demand, whole_layers=whole_layers)
        else:
            cut = dataclasses.replace(
                cut_as, costs=Pieces(stages, wires.links, demand).costs(cut_as.cut.ends)
            )
    except DoesNotFit as shortage:
        return dataclasses.replace(candidate, why_not=str(shortage))
    if machine.backward is Backward.SPLIT and any(costs.pg_ps is None for costs in cut.costs):
        return dataclasses.replace(candidate, why_not="what B and W take apart is not known")
    shape = Shape(stages.devices, micro_batches, cut.costs, machine)
    if better_than_ps is not None and _least_ps(shape) > better_than_ps:
        return None
    timeline = time_shape(kind, shape)
    tied_ps = (
        _updated_ps(timeline, wires.update_waits(stages.tied(cut.cut.ends))) - timeline.makespan_ps
    )
    limit = _limit(stages, cut)
    if tied_ps > timeline.makespan_ps:
        limit = "exchange of tied weights' gradients"
    time_ps = timeline.makespan_ps + tied_ps
    return dataclasses.replace(
        candidate, time_ps=time_ps, partition=cut, timeline=timeline, tied_ps=tied_ps, limit=limit
    )


def _updated_ps(timeline: PipelineResult, waits: UpdateWaits) -> int:
    """Return when the last update is made; each stage's gradients are there once its last action
    ends.
    """
    ends_ps: dict[int, int] = {}
    for timed in timeline.timed:
        ends_ps[timed.step.stage] = max(ends_ps.get(timed.step.stage, 0), timed.end_ps)
    came_ps = [came for stage, end_ps in ends_ps.items() for _, _, came in waits.add(stage, end_ps)]
    return max(timeline.makespan_ps, *came_ps)


def _kept(
    kind: PipelineKind, machine: Machine, devices: int, micro_batches: int
) -> tuple[int, ...]:
    """Return the micro-batches whose features each device keeps."""
    shape = Shape(devices, micro_batches, (StageCosts(1, 1, 1),) * devices, machine)
    programs = schedule_of(kind, shape)[0].programs(range(devices))
    return tuple(
        kept_micro_batches(programs[device], 1, machine.frees_features)[0]
        for device in range(devices)
    )


def _least_ps(shape: Shape) -> int:
    """Return a bound of the time of a shape, whatever its transport; of a split backward that of
    the work alone.
    """
    if shape.machine.backward is Backward.SPLIT:
        return shape.micro_batches * max(costs.work_ps for costs in shape.costs)
    if shape.machine.transport is Transport.STORED:
        return least_time_ps(shape)
    hidden = [dataclasses.replace(costs, transfer_ps=0) for costs in shape.costs]
    return least_time_ps(dataclasses.replace(shape, costs=hidden, machine=Machine()))


def _limit(stages: Stages, cut: Partition) -> str:
    """Return the slowest stage or link of a cut, by name."""
    works = [costs.work_ps for costs in cut.costs]
    sends = [costs.transfer_ps for costs in cut.costs[:-1]]
    stage = works.index(max(works))
    if max(sends, default=0) > works[stage]:
        link = sends.index(max(sends))
        return f"link {link} -> {link + 1}"
    begin, end = list(cut.cut.spans)[stage]
    return f"stage {stage} ({stages.said(begin, end)} on {stages.kinds[stage]})"


DATA_PARALLEL = "data-parallel"


def data_parallel(
    stages: Stages, wires: Wires, micro_batches: int, *, together: bool = True
) -> Candidate:
    """Return data parallelism as a candidate: each device trains all layers, and a ring exchanges
    the gradients.

    Micro-batches are dealt so that the slowest device ends as early as possible. Weights are off
    chip as soon as not all of them fit, if they are so `together`. The exchange begins when all
    devices are done.
    """
    candidate = Candidate(DATA_PARALLEL, stages.samples, micro_batches)
    times, parameters = [], 0
    for device in range(stages.devices):
        try:
            costs = stages.costs(0, stages.end, device, 1, together=together)
        except DoesNotFit as shortage:
            return dataclasses.replace(candidate, why_not=str(shortage))
        times.append(costs.work_ps)
        parameters = costs.parameter_bytes
    dealt = deal(times, micro_batches)
    ends = [count * time for count, time in zip(dealt, times, strict=True)]
    exchange = 0
    if stages.devices > 1:
        ready, values = (
            np.zeros(stages.devices, np.int64),
            -(-8 * parameters // FP32.bits),
        )  # as many bytes
        exchange = int(ring_ps(wires.interconnect.among(stages.devices), ready, values).max())
    slowest = ends.index(max(ends))
    limit = (
        f"device {slowest} ({stages.kinds[slowest]})"
        if max(ends) >= exchange
        else "exchange of gradients"
    )
    return dataclasses.replace(
        candidate,
        time_ps=max(ends) + exchange,
        dealt=dealt,
        compute_ps=max(ends),
        exchange_ps=exchange,
        limit=limit,
    )


def deal(times_ps: Sequence[int], count: int) -> tuple[int, ...]:
    """Return how many of `count` equal tasks each device gets so that the last one ends as early as
    possible.
    """
    dealt = [0] * len(times_ps)
    ends = [(time, device) for device, time in enumerate(times_ps)]
    heapq.heapify(ends)
    # Each task goes to the device that ends first with one more; for equal tasks nothing is better.
    for _ in range(count):
        end, device = ends[0]
        dealt[device] += 1
        heapq.heapreplace(ends, (end + times_ps[device], device))
    return tuple(dealt)


_FINEST = 100
"""The bandwidth at which the winner changes is found to a part in this many."""
FURTHEST = 1024
"""Bandwidths are tried by powers of two, from the cluster's own over this to as much times it."""


@dataclasses.dataclass(frozen=True)
class Question:
    """What is explored.

    `stages_of` gives the stages for a number of samples in a micro-batch; `micro_batches` are the
    numbers to try, each a divisor of `batch`; `schedules` are kinds with the machine that runs
    them. In data parallelism all weights of a device are on chip or all are not, if
    `weights_together`; else as many as fit, as a run has them.
    """

    stages_of: Callable[[int], Stages]
    wires: Wires
    batch: int
    micro_batches: tuple[int, ...]
    schedules: tuple[tuple[PipelineKind, Machine], ...]
    whole_layers: bool = False
    weights_together: bool = True

    def machine_of(self, candidate: Candidate) -> Machine | None:
        """Return how the devices work under a candidate; None under data parallelism."""
        return next(
            (machine for kind, machine in self.schedules if kind.name == candidate.name), None
        )

    def bounds_work(self, candidate: Candidate) -> bool:
        """Return whether all work is the only bound known of a candidate: of replicas, and where W
        is apart.
        """
        machine = self.machine_of(candidate)
        return machine is None or machine.backward is Backward.SPLIT


@dataclasses.dataclass(frozen=True)
class Turn:
    """Where another candidate wins: at a value of a parameter, and beyond."""

    parameter: str
    value: float
    winner: str


@dataclasses.dataclass(frozen=True)
class Exploration:
    """All candidates from the best to the worst, and a bound in ps of the winner's mini-batch over
    all cuts.

    `runner_up` is the best of another name than the winner, None if there is none. `turn` is the
    nearest bandwidth of the links with another winner or, where no bandwidth tried has one, the
    mini-batch that is halved until another one wins; None if there is none.
    """

    candidates: tuple[Candidate, ...]
    winner: Candidate
    runner_up: Candidate | None
    bound_ps: int
    turn: Turn | None

    @property
    def best_cut(self) -> Candidate | None:
        """The winner or, if it has no cut, the best candidate with one."""
        return next(
            (candidate for candidate in self.candidates if candidate.partition is not None), None
        )

    @property
    def gap(self) -> float:
        """By how much the winner's time exceeds the bound; 0.01 is 1 %."""
        assert self.winner.time_ps is not None
        return self.winner.time_ps / self.bound_ps - 1

    @property
    def margin(self) -> float | None:
        """By how much the runner-up's time exceeds the winner's."""
        if self.runner_up is None or self.runner_up.time_ps is None or self.winner.time_ps is None:
            return None
        return self.runner_up.time_ps / self.winner.time_ps - 1


def micro_batches_of(batch: int) -> tuple[int, ...]:
    """Return the samples of a micro-batch that are tried: powers of two that divide the
    mini-batch.
    """
    return tuple(1 << power for power in range(batch.bit_length()) if batch % (1 << power) == 0)


def explore(question: Question) -> Exploration:
    """Return the best way to train a mini-batch, and all others.

    Raises:
        InputError: there are more devices than layers, or nothing fits.
    """
    every = (
        candidate
        for samples in question.micro_batches
        for candidate in _candidates(question, samples)
    )
    candidates = sorted(every, key=lambda candidate: candidate.rank)
    fitting = [candidate for candidate in candidates if candidate.time_ps is not None]
    if not fitting:
        raise InputError(candidates[0].why_not)
    winner = fitting[0]
    return Exploration(
        tuple(candidates),
        winner,
        next((candidate for candidate in fitting if candidate.name != winner.name), None),
        _bound_ps(question, winner),
        _turn(question, winner),
    )


def _candidates(
    question: Question, samples: int, better_than_ps: int | None = None
) -> Iterator[Candidate]:
    """Yield the candidates with micro-batches of some samples, but for those that cannot be as fast
    as is given.
    """
    stages, count = question.stages_of(samples), question.batch // samples
    whole = question.whole_layers
    for kind, machine in question.schedules:
        candidate = pipelined(
            kind,
            machine,
            stages,
            question.wires,
            count,
            whole_layers=whole,
            better_than_ps=better_than_ps,
        )
        if candidate is not None:
            yield candidate
    yield data_parallel(stages, question.wires, count, together=question.weights_together)


def time_again(question: Question, candidate: Candidate) -> int:
    """Return the time in ps of a candidate that fits, on its cut, with the devices and links of a
    question.
    """
    stages, count = question.stages_of(candidate.samples), candidate.micro_batches
    again: Candidate | None
    if candidate.partition is None:
        again = data_parallel(stages, question.wires, count, together=question.weights_together)
    else:
        kind, machine = next(pair for pair in question.schedules if pair[0].name == candidate.name)
        again = pipelined(kind, machine, stages, question.wires, count, cut_as=candidate.partition)
    assert again is not None and again.time_ps is not None
    return again.time_ps


def _best(question: Question) -> Candidate | None:
    """Return the winner alone, without the timelines of those that cannot be it."""
    best: list[Candidate] = []
    for samples in question.micro_batches:
        best += _candidates(question, samples, best[0].time_ps if best else None)
        fitting = (candidate for candidate in best if candidate.time_ps is not None)
        best = sorted(fitting, key=lambda candidate: candidate.rank)[:1]
    return best[0] if best else None


def _bound_ps(question: Question, winner: Candidate) -> int:
    """Return a bound of the winner's mini-batch over all cuts that were allowed, or of all work
    (`bounds_work`).
    """
    stages = question.stages_of(winner.samples)
    machine = question.machine_of(winner)
    stored = machine is not None and machine.transport is Transport.STORED
    pieces = Pieces(stages, question.wires.links, Demand((1,) * stages.devices))
    if question.bounds_work(winner):
        rates = sum(
            1 / max(1, stages.least_ps(0, stages.end, device)) for device in range(stages.devices)
        )
        return int(winner.micro_batches / rates)
    if question.whole_layers:
        return cuts_between_layers_ps(pieces, winner.micro_batches, stored=stored)
    return all_cuts_ps(pieces, winner.micro_batches, stored=stored)


def _turn(question: Question, winner: Candidate) -> Turn | None:
    """Return the nearest bandwidth of all links, or else mini-batch, with another winner; of
    equally near the lower.
    """

    def name(other: Question) -> str:
        return (_best(other) or winner).name

    def of_links(factor: float) -> str:
        return name(dataclasses.replace(question, wires=question.wires.times(factor)))

    for power in range(1, FURTHEST.bit_length()) if question.wires.links else ():
        for sign in (-1, 1):
            other = of_links(2.0 ** (sign * power))
            if other != winner.name:
                factor, other = _between(
                    of_links, winner.name, other, 2.0 ** (sign * (power - 1)), 2.0 ** (sign * power)
                )
                slowest = min(link.bandwidth_mbps for link in question.wires.times(factor).links)
                return Turn("link.bandwidth_gbps", slowest / 1000, other)
    batch = question.batch
    while batch % 2 == 0:
        batch //= 2
        sizes = tuple(size for size in question.micro_batches if batch % size == 0)
        other = name(dataclasses.replace(question, batch=batch, micro_batches=sizes))
        if other != winner.name:
            return Turn("batch", batch, other)
    return None


def _between(
    at: Callable[[float], str], name: str, other: str, near: float, far: float
) -> tuple[float, str]:
    """Return a factor just beyond which the winner has another name than near it, and that name."""
    while max(near, far) > min(near, far) * (1 + 1 / _FINEST):
        middle = (
            near * far
        ) ** 0.5  # of factors, not of differences: bandwidths are tried over powers of two
        answer = at(middle)
        if answer == name:
            near = middle
        else:
            far, other = middle, answer
    return far, other
