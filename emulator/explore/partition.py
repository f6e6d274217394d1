"""BaPipe's way to a cut (section III-B): between layers, then coarse or within layers, then as
memory asks.

    profile -> inter-layer -> do messages take longer than stages?
                                yes: coarse, between groups of layers        \
                                no:  intra-layer, unless layers stay whole   /  -> does each stage fit its memory?
                                                                                    no: the best cut that fits

Cuts between layers are found by dynamic programming over (devices used, place): the least maximum with which the first
devices take all before a place. A stage's cost may be any function of its piece. Unlike `mapping.cut_layers`, which
asks for the cost of every piece, it leaves out those whose bounds, which are cheap to know, rule them out; of equally
fast cuts it may find another one.

Within layers, the time up to which stages are filled is found by bisection. With a given time, each device from
the first on takes the longest piece that it can do within it and whose message its link can carry within it. A part of
a piece takes no longer, up to roundings and to how its data lie on chip, so that is the best that can be done.

A cut is judged by the times of pieces and messages, and by bounds that no cut is below: `bounds`.

BaPipe's equation (1) is the time of a stage if a uniform network is cut at any place over unequal devices.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from ..cluster import Link
from ..common import InputError, format_bytes, format_time_ps, plural
from ..profile import DoesNotFit, Stages
from ..schedule import StageCosts


def ideal(whole: Sequence[int | Fraction]) -> tuple[Fraction, tuple[Fraction, ...]]:
    """Return T = 1 / sum(1 / T_n), and the shares l_n / L = T / T_n of the network that the devices
    get.

    `whole` are T_n, the times of the whole network on each device.
    """
    time = 1 / sum((1 / Fraction(time_ps) for time_ps in whole), Fraction(0))
    return time, tuple(time / time_ps for time_ps in whole)


@dataclasses.dataclass(frozen=True)
class Demand:
    """What a schedule asks of the devices.

    Each device keeps the features of `kept` micro-batches, and `weight_copies` versions of its
    weights; without these, one. Without `overlaps`, a device waits for the messages over the link
    behind it: 2 SR in addition to F + B.
    """

    kept: tuple[int, ...]
    overlaps: bool = True
    weight_copies: tuple[int, ...] = ()

    def copies(self, device: int) -> int:
        """Return the versions of its weights that a device keeps."""
        return self.weight_copies[device] if self.weight_copies else 1


class Pieces:
    """Pieces of a network on the devices of a chain, under a schedule; times are those of a
    micro-batch, in ps.
    """

    def __init__(
        self, stages: Stages, links: Sequence[Link], demand: Demand, *, heeds_memory: bool = True
    ) -> None:
        """Take the stages, the links between the devices, and the schedule's demand.

        Without `heeds_memory`, a piece that needs more memory than there is takes the time of one
        that does not.
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
        return self.stages.costs(
            begin, end, device, demand.kept[device], weight_copies=demand.copies(device)
        )

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
        """Return the time of the slowest message of a cut and its link; (0, 0) if there are no
        links.
        """
        # Negative, so that of equal links the first is named.
        times = [(self.link_ps(link, end), -link) for link, end in enumerate(ends[:-1])]
        longest, link = max(times, default=(0, 0))
        return longest, -link


_NEVER = 1 << 100
"""A time in ps longer than that of any stage."""


class Cut(NamedTuple):
    """The places at which stages end, and the time of the slowest one in ps."""

    ends: tuple[int, ...]
    period_ps: int

    @property
    def spans(self) -> Iterator[tuple[int, int]]:
        """The begin and the end of each stage."""
        return itertools.pairwise((0, *self.ends))


def least_cut(
    pieces: Pieces,
    places: Sequence[int],
    *,
    links_count: bool = False,
    longest_message_ps: int | None = None,
) -> Cut | None:
    """Return the cut at some of `places` whose slowest stage is as fast as possible; None if no cut
    fits.

    Args:
        pieces: times of stages and links.
        places: places in ascending order; the first and the last one are the ends of the row.
        links_count: whether the time of a message counts as that of a stage does.
        longest_message_ps: cuts whose messages take longer are left out.
    """
    bounds = _Bounds(pieces, places)
    most = _NEVER
    first = bounds.cut()
    if first is not None and not links_count and longest_message_ps is None:
        time = pieces.period_ps(first)
        most = _NEVER if time is None else time
    last = len(places) - 1
    # best[d][k]: the least maximum with which d devices take all before place k, and where the last
    # of them begins.
    #   places   0 ......... j ........ k            d devices up to j, one more from j to k: of all j the best,
    #            |-best[d][j]|-work(j, k)|           max(best[d][j], what waits and works), and best[d + 1][k] is known
    best: list[dict[int, tuple[int, int]]] = [{0: (0, 0)}]
    for device in range(pieces.devices):
        least: dict[int, tuple[int, int]] = {}
        # Each device before has a piece, and so has each one behind.
        ends = (
            [last]
            if device == pieces.devices - 1
            else range(device + 1, last - (pieces.devices - device - 2))
        )
        for k in ends:
            message = pieces.link_ps(device, places[k])
            if longest_message_ps is not None and message > longest_message_ps:
                continue
            counted = message if links_count else 0
            before = {j: max(time, counted) for j, (time, _) in best[device].items() if j < k}
            # Only less than `below` counts, and the cut that is known must remain: one more.
            piece = _fastest(
                pieces, places, device, k, before, bounds.rest(device + 1, k), most + 1
            )
            if piece is not None:
                least[k] = piece
        best.append(least)
    if last not in best[-1]:
        return None
    ends, k = [], last
    for device in range(pieces.devices, 0, -1):
        ends.append(places[k])
        k = best[device][k][1]
    return Cut(tuple(reversed(ends)), best[-1][last][0])


def _fastest(
    pieces: Pieces,
    places: Sequence[int],
    device: int,
    k: int,
    before: Mapping[int, int],
    rest: int,
    below: int,
) -> tuple[int, int] | None:
    """Return the least maximum of the devices up to one that ends at place k, and the place where
    this one begins.

    Args:
        pieces: times of stages and links.
        places: all places.
        device: the device.
        k: the number of the place at which it ends.
        before: for each place where it can begin, the least maximum of all before.
        rest: a bound for the devices behind it.
        below: only a maximum below this counts.
    """
    wait, fastest = pieces.wait_ps(device, places[k]), None
    bounds = (
        (max(time, wait + pieces.least_ps(places[j], places[k], device), rest), j)
        for j, time in before.items()
    )
    # By bound: once one is no better than what was found, none behind it is.
    for bound, j in sorted(bounds):
        if bound >= below:
            break
        work = pieces.work_ps(places[j], places[k], device)
        time = None if work is None else max(before[j], work + wait)
        if time is not None and time < below:
            fastest, below = (time, j), time
    return fastest


class _Bounds:
    """The least maximum by the bounds of pieces alone, for the devices from one on and the places
    from one on.
    """

    def __init__(self, pieces: Pieces, places: Sequence[int]) -> None:
        last, devices = len(places) - 1, pieces.devices
        self._places, self._devices = places, devices
        self._rest: list[dict[int, tuple[int, int]]] = [{} for _ in range(devices)] + [
            {last: (0, last)}
        ]
        for device in range(devices - 1, -1, -1):
            behind = self._rest[device + 1]
            for j in range(device, last - (devices - device - 1) + 1) if device else (0,):
                choices = []
                for k in range(j + 1, last + 1):
                    if k in behind:
                        own = pieces.least_ps(places[j], places[k], device)
                        choices.append((max(own, behind[k][0]), k))
                if choices:
                    self._rest[device][j] = min(choices)

    def rest(self, device: int, place: int) -> int:
        """Return a bound for the devices from `device` on, which begin at the place of a number."""
        return self._rest[device].get(place, (_NEVER, 0))[0]

    def cut(self) -> tuple[int, ...] | None:
        """Return the ends of the cut that the bounds alone would take; None if there are too few
        places.
        """
        if 0 not in self._rest[0]:
            return None
        ends, k = [], 0
        for device in range(self._devices):
            k = self._rest[device][k][1]
            ends.append(self._places[k])
        return tuple(ends)


_EXCESS = 1e-4
"""The time found exceeds the least one by less than this share."""


def filled_cut(pieces: Pieces, places: Sequence[int], enough: Cut) -> Cut:
    """Return a cut at some of `places` whose slowest stage and message take no longer than the
    slowest of `enough`.

    Args:
        pieces: times of stages and links.
        places: places in ascending order; the first and the last one are the ends of the row.
        enough: a cut that fits.
    """
    period_ps = pieces.period_ps(enough.ends)
    assert period_ps is not None
    best, high, low = Cut(enough.ends, period_ps), enough.period_ps, 0
    while high - low > max(1, int(_EXCESS * high)):
        middle = (low + high) // 2
        ends = _filled(pieces, places, middle)
        if ends is None:
            low = middle
            continue
        time = pieces.period_ps(ends)
        assert time is not None
        best, high = Cut(ends, time), middle
    return best


def fits_at_all(pieces: Pieces, places: Sequence[int], within_ps: int) -> Cut | None:
    """Return a cut that takes at most `within_ps`, None if none is found."""
    ends = _filled(pieces, places, within_ps)
    time = None if ends is None else pieces.period_ps(ends)
    return None if ends is None or time is None else Cut(ends, time)


def _filled(pieces: Pieces, places: Sequence[int], time_ps: int) -> tuple[int, ...] | None:
    """Return the ends of stages that are within a time, None if there are none."""
    at, last = 0, len(places) - 1
    ends: list[int] = []
    for device in range(pieces.devices - 1):
        # As far as each can: what it leaves is for those behind, each of which needs a place.
        end = _furthest(pieces, places, at, last - (pieces.devices - device - 1), device, time_ps)
        if end is None:
            return None
        at = end
        ends.append(places[at])
    work = pieces.work_ps(places[at], places[last], pieces.devices - 1)
    return (*ends, places[last]) if work is not None and work <= time_ps else None


def _furthest(
    pieces: Pieces, places: Sequence[int], at: int, most: int, device: int, time_ps: int
) -> int | None:
    """Return the last number of a place, up to `most`, at which a stage that begins at `at` can end
    within a time.
    """

    def takes_longer(k: int) -> bool:
        work = pieces.work_ps(places[at], places[k], device)
        return work is None or work > time_ps

    def can_end(k: int) -> bool:
        """Return whether the link carries the message in the time, and the device can wait for
        it.
        """
        message, wait = pieces.link_ps(device, places[k]), pieces.wait_ps(device, places[k])
        work = pieces.work_ps(places[at], places[k], device) if message <= time_ps else None
        return work is not None and work + wait <= time_ps

    # Longer pieces take longer, so ends are found by bisection: by the bound, which is cheap,
    # then by the time. Messages differ from place to place: of these ends, the last that fits.
    choices = range(at + 1, most + 1)
    choices = choices[
        : bisect.bisect_right(
            choices, time_ps, key=lambda k: pieces.least_ps(places[at], places[k], device)
        )
    ]
    if choices and takes_longer(choices[-1]):
        choices = choices[: bisect.bisect_left(choices, True, key=takes_longer)]
    return next((k for k in reversed(choices) if can_end(k)), None)


_LONG_PS = 1 << 80


@dataclasses.dataclass(frozen=True)
class Step:
    """A step of the exploration, and its reason, as text."""

    name: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Partition:
    """A cut, the costs of its stages, and the steps that led to it; `between_layers` if it may not
    cut within one.
    """

    cut: Cut
    costs: tuple[StageCosts, ...]
    steps: tuple[Step, ...]
    between_layers: bool


def partition(
    stages: Stages, links: Sequence[Link], demand: Demand, *, whole_layers: bool = False
) -> Partition:
    """Cut a network over the devices of a chain as BaPipe does.

    Args:
        stages: what pieces of the network take.
        links: the links between neighbours.
        demand: what the schedule asks of memory, and whether it overlaps messages.
        whole_layers: whether layers stay whole.

    Raises:
        InputError: there are more devices than layers.
        DoesNotFit: no cut fits into the devices' memories.
    """
    if stages.devices > len(stages.layers):
        raise InputError(
            f"`devices` = {stages.devices}: {stages.name} has"
            f" {plural(len(stages.layers), 'layer')}; a stage needs one at least"
        )
    return _Flow(stages, links, demand, whole_layers).run()


class _Flow:
    """The steps, one after the other."""

    def __init__(
        self, stages: Stages, links: Sequence[Link], demand: Demand, whole_layers: bool
    ) -> None:
        self._stages, self._whole_layers = stages, whole_layers
        self._pieces = Pieces(stages, links, demand)
        self._free = Pieces(stages, links, demand, heeds_memory=False)
        self._steps: list[Step] = []

    def run(self) -> Partition:
        stages = self._stages
        self._profile()
        first = least_cut(self._free, stages.starts)
        assert first is not None  # there are no fewer layers than devices
        self._say(
            "inter-layer",
            f"slowest stage {format_time_ps(first.period_ps)}, the fastest of all cuts between"
            " layers",
        )
        message_ps, link = self._free.slowest_link_ps(first.ends)
        bound = message_ps > first.period_ps
        if bound:
            cut, places, longest = self._coarse(message_ps, link)
        else:
            most = (
                f"a message takes {format_time_ps(message_ps)} at most, no longer than a stage: it"
                " does not limit"
            )
            self._say("communication", most if stages.devices > 1 else "one device sends none")
            cut, places, longest = self._within_layers(first)
        cut = self._heed_memory(cut, places, longest)
        return Partition(
            cut, self._pieces.costs(cut.ends), tuple(self._steps), bound or self._whole_layers
        )

    def _say(self, name: str, reason: str) -> None:
        self._steps.append(Step(name, reason))

    def _profile(self) -> None:
        stages = self._stages
        whole = [max(1, stages.least_ps(0, stages.end, device)) for device in range(stages.devices)]
        time, shares = ideal(whole)
        by_kind = {
            kind: (whole_ps, share)
            for kind, whole_ps, share in zip(stages.kinds, whole, shares, strict=True)
        }
        said = ", ".join(
            f"{kind} {format_time_ps(whole_ps)} (share {_percent(share)})"
            for kind, (whole_ps, share) in by_kind.items()
        )
        self._say(
            "profile", f"{plural(len(stages.layers), 'layer')}; F + B of all on one device: {said}"
        )
        self._say("ideal", f"T = 1 / sum(1 / T_n) = {format_time_ps(int(time))} a micro-batch")

    def _coarse(self, message_ps: int, link: int) -> tuple[Cut, Sequence[int], int | None]:
        """Merge layers between which more bytes cross than links carry in the least possible
        time.
        """
        self._say(
            "communication",
            f"link {link} -> {link + 1} takes {format_time_ps(message_ps)} for a message, more than"
            " a stage: it limits",
        )
        stages, pieces = self._stages, self._free
        threshold = least_cut(pieces, stages.starts, links_count=True)
        assert threshold is not None
        time = threshold.period_ps
        cut = least_cut(pieces, stages.starts, longest_message_ps=time)
        assert cut is not None
        slowest = min(
            range(stages.devices - 1), key=lambda number: pieces.links[number].bandwidth_mbps
        )
        most = pieces.links[slowest].carried_bytes(time)
        inner = [place for place in stages.starts[1:-1] if pieces.link_ps(slowest, place) <= time]
        self._say(
            "coarse",
            f"a_th = {format_bytes(most)}, what link {slowest} -> {slowest + 1} carries in"
            f" {format_time_ps(time)}: {len(inner) + 1} groups of layers; slowest stage"
            f" {format_time_ps(cut.period_ps)}",
        )
        return cut, stages.starts, time

    def _within_layers(self, first: Cut) -> tuple[Cut, Sequence[int], int | None]:
        if self._whole_layers:
            return first, self._stages.starts, None
        cut = filled_cut(self._free, self._stages.places, first)
        gain = 1 - cut.period_ps / first.period_ps
        self._say(
            "intra-layer", f"slowest stage {format_time_ps(cut.period_ps)}, {100 * gain:.1f} % less"
        )
        return cut, self._stages.places, None

    def _heed_memory(self, cut: Cut, places: Sequence[int], longest_ps: int | None) -> Cut:
        """Return the cut, or the best one that fits."""
        shortage = self._shortage(cut)
        if shortage is None:
            self._say("memory", "every stage fits")
            return cut
        if places is self._stages.starts:
            better = least_cut(self._pieces, places, longest_message_ps=longest_ps)
            better = better or least_cut(self._pieces, places, links_count=True)
        else:
            better = least_cut(self._pieces, self._stages.starts, links_count=True)
            better = better or fits_at_all(self._pieces, places, _LONG_PS)
            better = None if better is None else filled_cut(self._pieces, places, better)
        if better is None:
            raise shortage
        better = Cut(better.ends, self._pieces.period_ps(better.ends) or better.period_ps)
        self._say(
            "memory",
            f"{shortage}; with layers moved all fit, slowest stage"
            f" {format_time_ps(better.period_ps)}",
        )
        return better

    def _shortage(self, cut: Cut) -> DoesNotFit | None:
        """Return what is wrong with the first stage that does not fit."""
        try:
            self._pieces.costs(cut.ends)
        except DoesNotFit as shortage:
            return shortage
        return None


def _percent(share: Fraction) -> str:
    return f"{float(100 * share):.1f} %"
