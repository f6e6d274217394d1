"""Candidates of an exploration: schedules, searched orders, data parallelism, each on the cut that
suits it.

They are timed as runs are, on the timeline of their schedule. Data parallelism is one, too: every
device trains the whole network.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from ...comm import Interconnect, Topology
from ...comm.exchange import ring_ps
from ...kernels.number import FP32
from ..cluster import CHAIN, Link
from ..mapping import TiedWeights
from ..profile import DoesNotFit, Stages
from ..schedule import (
    Backward,
    Fold,
    Kind,
    Machine,
    PipelineKind,
    Schedule,
    Shape,
    StageCosts,
    Transport,
    kept_micro_batches,
)
from ..timing import (
    Course,
    FeatureBytes,
    PipelineResult,
    UpdateWaits,
    Ways,
    kept_courses,
    least_time_ps,
    schedule_of,
    time_shape,
)
from .again import Parts
from .partition import Demand, Partition, Pieces, partition
from .search import Search, search_order


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

    Of a pipeline there are the cut and the timeline, how much later than its last action the last
    update is made that waits for gradients of tied weights, and the bytes of features of each
    stage; of data parallelism the micro-batches of each device, the time of the slowest one and
    that of the exchange. A searched `order` has the bound of all orders on its cut.
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
    order: Schedule | None = None
    order_bound_ps: int = 0
    sizes: tuple[FeatureBytes, ...] = ()

    @property
    def recomputes(self) -> bool:
        """Whether R is among its actions."""
        return self.timeline is not None and self.timeline.recomputes

    @property
    def feature_bytes(self) -> int:
        """Bytes of features on all devices at their peak."""
        if self.partition is None or self.timeline is None:
            return 0
        kept = zip(self.timeline.features, self.partition.costs, strict=True)
        return int(sum(count * costs.feature_bytes for count, costs in kept))

    def courses(self, machine: Machine) -> tuple[Course, ...]:
        """Return the bytes of features that each device keeps over time; none without a
        timeline.
        """
        if self.timeline is None:
            return ()
        return _courses(self.timeline, self.sizes, machine)

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
    memory_bytes: int | None = None,
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
        memory_bytes: what weights, gradients, the optimiser's arrays and kept features may take of
            a device; None: what it has.

    Raises:
        InputError: there are more devices than layers.
    """
    machine = dataclasses.replace(machine, latency_ps=wires.latency_ps)
    candidate = Candidate(kind.name, stages.samples, micro_batches)
    kept, redone = _kept(kind, machine, stages.devices, micro_batches)
    overlaps = machine.transport is Transport.HIDDEN or kind.overlaps
    try:
        demand, cut = Demand(kept, overlaps), cut_as
        if cut is None:
            inside = stages.redoing(redone) if kind.recomputes else stages
            cut = partition(inside, wires.links, demand, whole_layers=whole_layers)
        if cut_as is not None or kind.recomputes:
            apart = stages.redoing(redone, apart=True) if kind.recomputes else stages
            pieces = Pieces(apart, wires.links, demand)
            cut = dataclasses.replace(cut, costs=pieces.costs(cut.cut.ends))
        if not kind.recomputes:
            _check_memory(stages, cut, kept, memory_bytes)
    except DoesNotFit as shortage:
        return dataclasses.replace(candidate, why_not=str(shortage))
    if machine.backward is Backward.SPLIT and any(costs.pg_ps is None for costs in cut.costs):
        return dataclasses.replace(candidate, why_not="what B and W take apart is not known")
    shape = Shape(stages.devices, micro_batches, cut.costs, machine)
    if better_than_ps is not None and _least_ps(shape) > better_than_ps:
        return None
    timeline = time_shape(kind, shape)
    sizes = tuple(stages.features(*span) for span in cut.cut.spans)
    if kind.recomputes:
        peaks = [course.peak_bytes for course in _courses(timeline, sizes, machine)]
        try:
            _check_peaks(stages, cut, peaks, memory_bytes)
        except DoesNotFit as shortage:
            return dataclasses.replace(candidate, why_not=str(shortage))
    tied_ps = (
        _updated_ps(timeline, wires.update_waits(stages.tied(cut.cut.ends))) - timeline.makespan_ps
    )
    limit = _limit(stages, cut)
    if tied_ps > timeline.makespan_ps:
        limit = "exchange of tied weights' gradients"
    time_ps = timeline.makespan_ps + tied_ps
    return dataclasses.replace(
        candidate,
        time_ps=time_ps,
        partition=cut,
        timeline=timeline,
        tied_ps=tied_ps,
        limit=limit,
        sizes=sizes,
    )


def _courses(
    timeline: PipelineResult, sizes: Sequence[FeatureBytes], machine: Machine
) -> tuple[Course, ...]:
    """Return the bytes of features that each device keeps over time."""
    return kept_courses(
        timeline.timed,
        len(sizes),
        machine.frees_features,
        lambda step: sizes[step.stage],
        apart=timeline.recomputes,
    )


def _check_memory(
    stages: Stages, cut: Partition, kept: Sequence[int], memory_bytes: int | None
) -> None:
    """Check that stages that keep `kept` micro-batches take no more memory than is allowed.

    Raises:
        DoesNotFit: one does.
    """
    features = zip(kept, cut.costs, strict=True)
    peaks = [count * costs.feature_bytes for count, costs in features]
    _check_peaks(stages, cut, peaks, memory_bytes)


def _check_peaks(
    stages: Stages, cut: Partition, peaks: Sequence[int], memory_bytes: int | None
) -> None:
    """Check that stages with `peaks` bytes of features take no more memory than is allowed.

    Raises:
        DoesNotFit: one does.
    """
    if memory_bytes is None:
        return
    for device, (begin, end) in enumerate(cut.cut.spans):
        needed = stages.standing_bytes(begin, end) + peaks[device]
        if needed > memory_bytes:
            raise DoesNotFit(device, needed, memory_bytes, "of `memory`", stages.kinds[device])


_MOST_CUTS = 4
"""Cuts for whose times an order is searched, each that which suits the order before."""


def searched(
    search: Search,
    machine: Machine,
    stages: Stages,
    wires: Wires,
    micro_batches: int,
    *,
    whole_layers: bool = False,
    memory_bytes: int | None = None,
    again: Stages | None = None,
) -> Candidate:
    """Return an order as a candidate that is searched for the times of its own cut.

    The first cut is that of one kept micro-batch. An order's cut depends on what it keeps, so that
    another one is searched for the new times, until these stay. The order may have R where there
    are stages `again` whose features of some layers are recomputed.

    Raises:
        InputError: there are more devices than layers.
    """
    machine = dataclasses.replace(machine, latency_ps=wires.latency_ps)
    nothing = Candidate(search.name, stages.samples, micro_batches)
    ones = (1,) * stages.devices
    try:
        cut = partition(stages, wires.links, Demand(ones), whole_layers=whole_layers)
        _check_memory(stages, cut, ones, memory_bytes)
    except DoesNotFit as shortage:
        return dataclasses.replace(nothing, why_not=str(shortage))
    if any(costs.pg_ps is None for costs in cut.costs):
        why = "what B and W take apart is not known; a profile should have `gradient_us`"
        return dataclasses.replace(nothing, why_not=why)
    best = nothing
    for _ in range(_MOST_CUTS):
        costs = cut.costs if again is None else _with_r(again, wires, cut)
        shape = Shape(stages.devices, micro_batches, costs, machine)
        parts = None if again is None else [_parts(again, span) for span in cut.cut.spans]
        rooms = _rooms(stages, cut, memory_bytes, micro_batches, parts)
        answer = search_order(search, shape, rooms, parts=parts)
        kind = kind_of_order(answer.schedule)
        candidate = pipelined(
            kind,
            machine,
            again if again is not None and kind.recomputes else stages,
            wires,
            micro_batches,
            whole_layers=whole_layers,
            memory_bytes=memory_bytes,
        )
        assert candidate is not None
        suiting = candidate.partition
        if suiting is None:
            return candidate if best is nothing else best
        suited = suiting.costs if again is None else _with_r(again, wires, suiting)
        same = [*map(_without_bytes, suited)] == [*map(_without_bytes, costs)]
        bound_ps = answer.bound_ps if same else 0
        candidate = dataclasses.replace(candidate, order=answer.schedule, order_bound_ps=bound_ps)
        best = candidate if best is nothing else min(best, candidate, key=lambda one: one.rank)
        if same:
            break
        cut = suiting
    return best


def _with_r(again: Stages, wires: Wires, cut: Partition) -> tuple[StageCosts, ...]:
    """Return the costs of a cut with what R takes."""
    if any(costs.recompute_ps for costs in cut.costs):
        return cut.costs
    ones = (1,) * again.devices
    apart = Pieces(again.redoing(ones, apart=True), wires.links, Demand(ones))
    pairs = zip(cut.costs, apart.costs(cut.cut.ends), strict=True)
    return tuple(dataclasses.replace(own, recompute_ps=r.recompute_ps) for own, r in pairs)


def _parts(again: Stages, span: tuple[int, int]) -> Parts:
    """Return what a micro-batch keeps of a stage, in bytes, with R and without it."""
    size = again.features(*span)
    whole = int(size.all_kept.kept)
    return Parts(whole, whole, int(size.kept), int(size.kept + size.again) - whole)


def _without_bytes(costs: StageCosts) -> StageCosts:
    return dataclasses.replace(costs, feature_bytes=0, parameter_bytes=0)


def _rooms(
    stages: Stages,
    cut: Partition,
    memory_bytes: int | None,
    micro_batches: int,
    parts: Sequence[Parts] | None,
) -> list[Fraction] | None:
    """Return how many micro-batches each device may keep, or how many bytes of them where their
    parts are known; None: as the search says.
    """
    if memory_bytes is None:
        return None
    rooms = []
    for device, (begin, end) in enumerate(cut.cut.spans):
        left = memory_bytes - stages.standing_bytes(begin, end)
        if parts is not None:
            rooms.append(Fraction(max(parts[device].kept, left)))
            continue
        size = cut.costs[device].feature_bytes
        rooms.append(Fraction(max(1, left // size) if size else micro_batches))
    return rooms


def kind_of_order(order: Schedule) -> PipelineKind:
    """Return an order as a kind of schedule, as a file of it would be one."""
    return PipelineKind(
        order.name,
        lambda epoch: order,
        "searched",
        drains=True,
        repeats=True,
        recomputes=_has_r(order),
        machine=Machine(backward=Backward.SPLIT),
    )


def _has_r(order: Schedule) -> bool:
    programs = order.programs(range(order.devices)).values()
    return any(action.kind is Kind.RECOMPUTE for program in programs for action in program)


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
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the most micro-batches of which each device keeps features, and of those with R the
    most whose features are there.
    """
    shape = Shape(devices, micro_batches, (StageCosts(1, 1, 1),) * devices, machine)
    schedule, _ = schedule_of(kind, shape)

    # Programs are read once, so each is counted on new ones.
    def counts(first: Kind) -> tuple[int, ...]:
        programs = schedule.programs(range(devices)).values()
        return tuple(kept_micro_batches(p, 1, machine.frees_features, first)[0] for p in programs)

    kept = counts(Kind.FORWARD)
    return kept, counts(Kind.RECOMPUTE) if kind.recomputes else (1,) * devices


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
    stages: Stages,
    wires: Wires,
    micro_batches: int,
    *,
    together: bool = True,
    memory_bytes: int | None = None,
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
            needed = stages.standing_bytes(0, stages.end) + costs.feature_bytes
            if memory_bytes is not None and needed > memory_bytes:
                kind = stages.kinds[device]
                raise DoesNotFit(device, needed, memory_bytes, "of `memory`", kind)
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
