"""Which rank hosts which devices, and the memory that a run takes there, checked before training
begins.

Neighbours are together, and ranks have the same work. A cut that is fair to boards need not be fair
to ranks: a board whose memory port binds computes little. What a rank's processor has to do is
estimated (`Plan.work`) from multiply-accumulates and from weights, which are read and written from
memory for each micro-batch.

What is counted of memory is certain to be taken, so that no run is refused that would have had
room: of each slice its weights, their gradients, what the optimiser keeps, older versions, weights
turned for EB, and activations in flight; beside them what replicas exchange, images copied to other
ranks, and weights that rank 0 gathers.
"""

from __future__ import annotations

import dataclasses
import itertools
from bisect import bisect_right
from collections.abc import Iterator, Sequence

import numpy as np

from ...kernels.number import FP32
from ...kernels.optimizers import optimizer_kind
from ...launch import Ranks
from ..common import InputError, Room, format_bytes, host_room, process_room
from ..data import Dataset
from ..mapping import parameter_memory
from ..plan import ChainPlan, Plan
from ..schedule import weight_copies

_NEAR = 1.1
"""The busiest rank may have this much more than the least found where each rank has as many devices
instead.
"""
_TURNS = 64
"""How many of the last devices are tried as the first rank's."""


@dataclasses.dataclass(frozen=True)
class Placement:
    """The rank of each device. A rank has consecutive devices; the first one may have the last
    devices, too.
    """

    hosts: tuple[int, ...]

    @classmethod
    def of(cls, work: Sequence[int], ranks: int) -> Placement:
        """Return a placement with little work on the busiest rank; `work` is that of each device.

        Each rank has as many devices as the others, but for one, where that is as good. Ranks
        beyond the number of devices have none.
        """
        count = len(work)
        ranks = min(ranks, count)
        even = cls(tuple(device * ranks // count for device in range(count)))
        best = even
        if 1 < ranks < count:
            tried = [_around(work, ranks, turn) for turn in range(min(_TURNS, count))]
            best = min(tried, key=lambda at: at.most(work))
        return even if even.most(work) <= _NEAR * best.most(work) else best

    @property
    def devices(self) -> int:
        """Number of devices."""
        return len(self.hosts)

    def most(self, work: Sequence[int]) -> int:
        """Return the work of the busiest rank."""
        return max(self.by_rank(work, max(self.hosts) + 1))

    def by_rank(self, work: Sequence[int], ranks: int) -> list[int]:
        """Return the work of each of `ranks` ranks."""
        sums = [0] * ranks
        for host, own in zip(self.hosts, work, strict=True):
            sums[host] += own
        return sums

    def host(self, device: int) -> int:
        """Return the rank of a device."""
        return self.hosts[device]

    def hosted(self, rank: int) -> list[int]:
        """Return the devices of a rank."""
        return [device for device, host in enumerate(self.hosts) if host == rank]

    def described(self, rank: int) -> str:
        """Return the devices of a rank as text."""
        hosted = self.hosted(rank)
        # Consecutive devices have the same number minus place: 2, 3, 7 at 0, 1, 2 give 2, 2, 5.
        runs = [
            list(run)
            for _, run in itertools.groupby(
                hosted, key=lambda device: device - hosted.index(device)
            )
        ]
        spans = [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
        return f"device{'s' * (len(hosted) > 1)} {', '.join(spans)}" if hosted else "no device"


def _around(work: Sequence[int], ranks: int, turn: int) -> Placement:
    """Return the best placement whose first rank begins with the last `turn` devices, and goes on
    with the first.
    """
    count = len(work)
    turned = [*work[count - turn :], *work[: count - turn]]
    sums = [0, *itertools.accumulate(turned)]
    # Bisection: a bound on the work of a rank that suffices does so when it is raised, and none is
    # below the largest device, which cannot be divided.
    least, enough = max(turned), sums[-1]
    while least < enough:
        middle = (least + enough) // 2
        if _ends(sums, ranks, middle) is None:
            least = middle + 1
        else:
            enough = middle
    ends = _ends(sums, ranks, enough)
    assert ends is not None  # all the work is enough for one
    hosts = [bisect_right(ends, place) for place in range(count)]
    return Placement((*hosts[turn:], *hosts[:turn]))


def _ends(sums: Sequence[int], ranks: int, most: int) -> list[int] | None:
    """Return where each rank's devices end if none has more work than `most`; None if that cannot
    be.

    `sums` are those of the work up to each device. Each rank has a device.
    """
    ends, count = [0], len(sums) - 1
    # As many as the bound lets in, but `left` devices stay for the ranks behind, one for each.
    for left in range(ranks - 1, -1, -1):
        ends.append(min(bisect_right(sums, sums[ends[-1]] + most) - 1, count - left))
    return ends[1:] if ends[-1] == count else None


_BEING_MADE = 4  # arrays of a slice's weights while they are drawn, packed and copied
_EXCHANGED = 3  # arrays of gradients beside their sum: of a slice, in a row, and what arrives
_STEPS = 2  # mini-batches beyond as many as devices, after which no more versions are kept


def check_needs(
    plan: Plan,
    data: Dataset,
    ranks: Ranks,
    *,
    gathers: bool,
    trains: bool = True,
    rooms: tuple[Room, Room | None] | None = None,
) -> None:
    """Check that the ranks of this host have the memory that a run takes beyond what they hold
    already.

    `gathers` says whether weights of all layers come together on rank 0; without `trains` they are
    only evaluated. `rooms` are what all processes of this host have together and what this one may
    take, by default those of now.

    Raises:
        InputError: there is less.
    """
    needs = needed_bytes(plan, data, ranks.size, gathers=gathers, trains=trains)
    here = sum(needs[rank] for rank in ranks.on_this_host)
    shared, own = rooms or (host_room(), process_room())
    for needed, room in ((here, shared), (needs[ranks.rank], own)):
        if room is not None and needed > room.free_bytes:
            parameters = sum(layer.parameters for layer in plan.network.layers)
            raise InputError(
                f"`network` = {plan.network.name!r}: {'training' if trains else 'evaluating'} takes"
                f" at least {format_bytes(needed)} of memory, for {parameters:,} parameters and all"
                f" arrays that belong to them, but {room.limit} {format_bytes(room.free_bytes)};"
                " give a smaller network or `batch`, or more memory"
            )


def needed_bytes(
    plan: Plan, data: Dataset, ranks: int, *, gathers: bool, trains: bool = True
) -> list[int]:
    """Return the bytes that each rank takes for a run, beyond its data, which are in memory
    already.
    """
    states = len(optimizer_kind(plan.config.optimizer).states) if trains else 0
    weights = [FP32.bytes_of(layer.parameters) for layer in plan.network.layers]
    if isinstance(plan, ChainPlan):
        needs = _of_chains(plan, data, ranks, states, trains=trains)
    else:
        needs = [(2 + states) * sum(weights)] + [0] * (ranks - 1)
    if gathers:
        needs[0] += 2 * sum(weights)  # as they are sent, and put together
    elif plan.config.checkpoint is not None:
        needs[0] += 2 * (1 + states) * max(weights)  # layer by layer
    return needs


def _of_chains(
    plan: ChainPlan, data: Dataset, ranks: int, states: int, *, trains: bool
) -> list[int]:
    """Return what the devices of all replicas take, by rank."""
    replicas, stages = plan.data_parallel.replicas if trains else 1, plan.stage_count
    placement = Placement.of(plan.work[: replicas * plan.devices], ranks)
    versions = _versions(plan, data) if trains else [1] * stages
    steady, made, peaks = ([0] * ranks for _ in range(3))
    for replica in range(replicas):
        for stage in range(stages):
            host = placement.host(replica * plan.devices + plan.fold.device(stage))
            for weights, arrays in _weights(plan, stage):
                peaks[host] = max(peaks[host], made[host] + _BEING_MADE * weights)
                made[host] += arrays * weights
            steady[host] += _of_stage(plan, stage, states, versions[stage], trains=trains)
    needs = [max(of_rank) for of_rank in zip(steady, peaks, strict=True)]
    if trains and replicas > 1 and isinstance(data.train_images, np.ndarray):
        for rank in {*placement.hosts} - {0}:
            needs[rank] += data.train_images.nbytes
    return needs


def _weights(plan: ChainPlan, stage: int) -> Iterator[tuple[int, int]]:
    """Yield for each slice of a stage the bytes of its weights, and how many arrays like them it
    begins with.
    """
    for part in plan.mapping.devices[stage]:
        turned = part.layer.needs_errors and not part.layer.operation.recurs
        yield parameter_memory(part, part.channels).bytes, 3 if turned else 2


def _of_stage(plan: ChainPlan, stage: int, states: int, versions: int, *, trains: bool) -> int:
    """Return what is held in training: weights by version, gradients, what updates keep,
    activations in flight.
    """
    in_flight = max(1, min(plan.steady.in_flight[stage], plan.batch) if trains else 1)
    exchanged = _EXCHANGED if plan.data_parallel.replicas > 1 and trains else 0
    shares = plan.cluster.sharing.states
    total = sum(
        weights * ((arrays - 1) * versions + 1 + exchanged) + weights * states // shares
        for weights, arrays in _weights(plan, stage)
    )
    for part in plan.mapping.devices[stage]:
        total += FP32.bytes_of(
            in_flight * len(part.in_channels) * part.layer.input[1] * part.layer.input[2]
        )
    return total


def _versions(plan: ChainPlan, data: Dataset) -> Sequence[int]:
    """Return the most versions of its weights that each stage keeps at a time."""
    samples = (
        min(data.n_train, (plan.devices + _STEPS) * plan.config.batch)
        // plan.data_parallel.replicas
    )
    schedule = plan.schedule(max(samples, 1))
    programs = schedule.programs([*range(plan.devices)])
    kept = [weight_copies(programs[device]) for device in range(plan.devices)]
    return [kept[plan.fold.device(stage)] for stage in range(plan.stage_count)]
