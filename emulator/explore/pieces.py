"""What a cut is judged by: the times of pieces and messages, and bounds that no cut is below.

BaPipe's equation (1) is the time of a stage if a uniform network is cut at any place over unequal devices.

No cut and no synchronous schedule is below the bounds of the time of a mini-batch. Given a cut with times t_i = F_i +
B_i and messages SR_i, stage i of N does M t_i of work, begins no sooner than the first micro-batch has come, and its
last B still has to go all the way back: for every order of actions with B in one piece,

    T >= P_i + M t_i,    P_i = sum over j < i of (t_j + 2 SR_j)                                                    (1)

    stage 0  [F]                                   [B]
    stage 1      [F]                          [B]          what stands above stage 2, with the messages between, is P_2
    stage 2          [F][F][B] ... [F][B][B]               M t_2

Over all cuts between layers: T is possible only if some cut has (1) for all i. For a given T, dynamic programming over
(stages, layers) keeps the least P with which the first stages can take the first layers; a smaller P is never worse, so
none that matters is lost. The least possible T follows by bisection. `least_ps` is no more than F + B of any piece,
whatever lies off chip.

Over all cuts at any place: let layer l have an amount v_l of work, and r_i be the most of v that device i does in a
picosecond, max over l of v_l / time of l on i. With numbers y_i >= 0 such that M y_i + sum over k > i of y_k >= r_i for
all i, all work is

    V <= sum r_i t_i <= sum_i t_i (M y_i + sum_{k>i} y_k) = sum_k y_k (M t_k + sum_{i<k} t_i) <= sum_k y_k (T - S_k)

where S_k are the messages in P_k; so T >= (V + sum y_k S_k) / sum y_k. From the last device to the first, y_i takes the
least value that is allowed. This holds for any v; each device's own times are tried.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from fractions import Fraction

from ..cluster import Link
from ..profile import DoesNotFit, Stages
from ..schedule import StageCosts


def ideal(whole: Sequence[int | Fraction]) -> tuple[Fraction, tuple[Fraction, ...]]:
    """Return T = 1 / sum(1 / T_n), and the shares l_n / L = T / T_n of the network that the devices get.

    `whole` are T_n, the times of the whole network on each device.
    """
    time = 1 / sum((1 / Fraction(time_ps) for time_ps in whole), Fraction(0))
    return time, tuple(time / time_ps for time_ps in whole)


@dataclasses.dataclass(frozen=True)
class Demand:
    """What a schedule asks of the devices.

    Each device keeps the features of `kept` micro-batches, and `weight_copies` versions of its weights; without these,
    one. Without `overlaps`, a device waits for the messages over the link behind it: 2 SR in addition to F + B.
    """

    kept: tuple[int, ...]
    overlaps: bool = True
    weight_copies: tuple[int, ...] = ()

    def copies(self, device: int) -> int:
        """Return the versions of its weights that a device keeps."""
        return self.weight_copies[device] if self.weight_copies else 1


class Pieces:
    """Pieces of a network on the devices of a chain, under a schedule; times are those of a micro-batch, in ps."""

    def __init__(self, stages: Stages, links: Sequence[Link], demand: Demand, *, heeds_memory: bool = True) -> None:
        """Take the stages, the links between the devices, and the schedule's demand.

        Without `heeds_memory`, a piece that needs more memory than there is takes the time of one that does not.
        """
        self.stages, self.links, self.demand = stages, tuple(links), demand
        self._heeds_memory = heeds_memory

    @property
    def devices(self) -> int:
        """Number of devices."""
        return self.stages.devices

    def work_ps(self, begin: int, end: int, device: int) -> int | None:
        """Return F + B of a piece; None if it does not fit."""
        try:
            return self._costs(begin, end, device).work_ps
        except DoesNotFit:
            return None if self._heeds_memory else max(1, self.least_ps(begin, end, device))

    def _costs(self, begin: int, end: int, device: int) -> StageCosts:
        demand = self.demand
        return self.stages.costs(begin, end, device, demand.kept[device], weight_copies=demand.copies(device))

    def least_ps(self, begin: int, end: int, device: int) -> int:
        """Return a time that no piece is below, which grows with the piece."""
        return self.stages.least_ps(begin, end, device)

    def link_ps(self, device: int, place: int) -> int:
        """Return the time of a message at a cut behind a device, 0 behind the last one."""
        if device >= len(self.links):
            return 0
        return self.links[device].transfer_ps(self.stages.message_bytes(place))

    def wait_ps(self, device: int, place: int) -> int:
        """Return how long a device waits for the messages of a micro-batch."""
        return 0 if self.demand.overlaps else 2 * self.link_ps(device, place)

    def costs(self, ends: Sequence[int]) -> tuple[StageCosts, ...]:
        """Return the costs of the stages of a cut.

        Raises:
            DoesNotFit: one needs more memory than there is.
        """
        stages = []
        for device, (begin, end) in enumerate(itertools.pairwise((0, *ends))):
            costs = self._costs(begin, end, device)
            stages.append(dataclasses.replace(costs, transfer_ps=self.link_ps(device, end)))
        return tuple(stages)

    def period_ps(self, ends: Sequence[int]) -> int | None:
        """Return the time of the slowest stage of a cut; None if one does not fit."""
        slowest = 0
        for device, (begin, end) in enumerate(itertools.pairwise((0, *ends))):
            work = self.work_ps(begin, end, device)
            if work is None:
                return None
            slowest = max(slowest, work + self.wait_ps(device, end))
        return slowest

    def slowest_link_ps(self, ends: Sequence[int]) -> tuple[int, int]:
        """Return the time of the slowest message of a cut and its link; (0, 0) if there are no links."""
        times = [(self.link_ps(link, end), -link) for link, end in enumerate(ends[:-1])]
        longest, link = max(times, default=(0, 0))
        return longest, -link


_GRID = 1 << 40
"""y is rounded up to multiples of r / _GRID, which keeps fractions short and the bound valid."""


def all_cuts_ps(pieces: Pieces, micro_batches: int, *, stored: bool) -> int:
    """Return the bound of a mini-batch over cuts at any place, in ps; with `stored` messages these count, too."""
    starts, devices = pieces.stages.starts, pieces.devices
    times = [
        [max(1, pieces.least_ps(begin, end, device)) for begin, end in itertools.pairwise(starts)]
        for device in range(devices)
    ]
    sent = [0] * devices
    if stored:
        inner = [place for place in pieces.stages.places if 0 < place < pieces.stages.end]
        for link in range(devices - 1):
            least = min(pieces.link_ps(link, place) for place in inner)
            sent[link + 1] = sent[link] + 2 * least
    return max(_by_rates(works, times, sent, micro_batches) for works in {tuple(layer_times) for layer_times in times})


def _by_rates(works: Sequence[int], times: Sequence[Sequence[int]], sent: Sequence[int], micro_batches: int) -> int:
    rates = [max(Fraction(work, time) for work, time in zip(works, layer_times, strict=True)) for layer_times in times]
    unit = max(rates) / (_GRID * micro_batches)
    behind, weighed = Fraction(0), Fraction(0)
    for rate, messages in zip(reversed(rates), reversed(sent), strict=True):
        exact = max(Fraction(0), (rate - behind) / micro_batches)
        own = -(-exact // unit) * unit
        behind += own
        weighed += own * messages
    return -(-(sum(works) + weighed) // behind) if behind else 0


def cuts_between_layers_ps(pieces: Pieces, micro_batches: int, *, stored: bool) -> int:
    """Return the bound of a mini-batch over cuts between layers, in ps; 0 if there are too few layers."""
    starts = pieces.stages.starts
    whole = [pieces.least_ps(0, starts[-1], device) for device in range(pieces.devices)]
    high = micro_batches * max(whole) + sum(whole)
    if stored:
        longest = [max(pieces.link_ps(link, place) for place in starts) for link in range(pieces.devices - 1)]
        high += 2 * sum(longest)
    if not _is_possible(pieces, micro_batches, high, stored):
        return 0
    low = 0
    while high - low > 1:
        middle = (low + high) // 2
        if _is_possible(pieces, micro_batches, middle, stored):
            high = middle
        else:
            low = middle
    return high


def _is_possible(pieces: Pieces, micro_batches: int, time_ps: int, stored: bool) -> bool:
    """Return whether a cut between layers satisfies (1) with a time for all its stages."""
    starts, last = pieces.stages.starts, len(pieces.stages.starts) - 1
    ahead = {0: 0}
    for device in range(pieces.devices):
        least: dict[int, int] = {}
        for j, before in ahead.items():
            for k in range(j + 1, last + 1):
                own = pieces.least_ps(starts[j], starts[k], device)
                if before + micro_batches * own > time_ps:
                    break
                messages = 2 * pieces.link_ps(device, starts[k]) if stored else 0
                least[k] = min(least.get(k, before + own + messages), before + own + messages)
        ahead = least
    return last in ahead
