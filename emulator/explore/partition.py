"""BaPipe's way to a cut (section III-B): between layers, then coarse or within layers, then as memory asks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from fractions import Fraction

from ..cluster import Link
from ..common import InputError, format_bytes, format_time_ps, plural
from ..profile import DoesNotFit, Stages
from ..schedule import StageCosts
from .inter_layer import Cut, filled_cut, fits_at_all, least_cut
from .pieces import Demand, Pieces, ideal

_LONG_PS = 1 << 80


@dataclasses.dataclass(frozen=True)
class Step:
    """A step of the exploration, and its reason, as text."""

    name: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Partition:
    """A cut, the costs of its stages, and the steps that led to it; `between_layers` if it may not cut within one."""

    cut: Cut
    costs: tuple[StageCosts, ...]
    steps: tuple[Step, ...]
    between_layers: bool


def partition(stages: Stages, links: Sequence[Link], demand: Demand, *, whole_layers: bool = False) -> Partition:
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
            f"`devices` = {stages.devices}: {stages.name} has {plural(len(stages.layers), 'layer')};"
            f" a stage needs one at least"
        )
    return _Flow(stages, links, demand, whole_layers).run()


class _Flow:
    """The steps, one after the other."""

    def __init__(self, stages: Stages, links: Sequence[Link], demand: Demand, whole_layers: bool) -> None:
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
            "inter-layer", f"slowest stage {format_time_ps(first.period_ps)}, the fastest of all cuts between layers"
        )
        message_ps, link = self._free.slowest_link_ps(first.ends)
        bound = message_ps > first.period_ps
        if bound:
            cut, places, longest = self._coarse(message_ps, link)
        else:
            most = f"a message takes {format_time_ps(message_ps)} at most, no longer than a stage: it does not limit"
            self._say("communication", most if stages.devices > 1 else "one device sends none")
            cut, places, longest = self._within_layers(first)
        cut = self._heed_memory(cut, places, longest)
        return Partition(cut, self._pieces.costs(cut.ends), tuple(self._steps), bound or self._whole_layers)

    def _say(self, name: str, reason: str) -> None:
        self._steps.append(Step(name, reason))

    def _profile(self) -> None:
        stages = self._stages
        whole = [max(1, stages.least_ps(0, stages.end, device)) for device in range(stages.devices)]
        time, shares = ideal(whole)
        by_kind = {kind: (whole_ps, share) for kind, whole_ps, share in zip(stages.kinds, whole, shares, strict=True)}
        said = ", ".join(
            f"{kind} {format_time_ps(whole_ps)} (share {_percent(share)})"
            for kind, (whole_ps, share) in by_kind.items()
        )
        self._say("profile", f"{plural(len(stages.layers), 'layer')}; F + B of all on one device: {said}")
        self._say("ideal", f"T = 1 / sum(1 / T_n) = {format_time_ps(int(time))} a micro-batch")

    def _coarse(self, message_ps: int, link: int) -> tuple[Cut, Sequence[int], int | None]:
        """Merge layers between which more bytes cross than links carry in the least possible time."""
        self._say(
            "communication",
            f"link {link} -> {link + 1} takes {format_time_ps(message_ps)} for a message, more than a stage: it limits",
        )
        stages, pieces = self._stages, self._free
        threshold = least_cut(pieces, stages.starts, links_count=True)
        assert threshold is not None
        time = threshold.period_ps
        cut = least_cut(pieces, stages.starts, longest_message_ps=time)
        assert cut is not None
        slowest = min(range(stages.devices - 1), key=lambda number: pieces.links[number].bandwidth_mbps)
        most = pieces.links[slowest].carried_bytes(time)
        inner = [place for place in stages.starts[1:-1] if pieces.link_ps(slowest, place) <= time]
        self._say(
            "coarse",
            f"a_th = {format_bytes(most)}, what link {slowest} -> {slowest + 1} carries in {format_time_ps(time)}:"
            f" {len(inner) + 1} groups of layers; slowest stage {format_time_ps(cut.period_ps)}",
        )
        return cut, stages.starts, time

    def _within_layers(self, first: Cut) -> tuple[Cut, Sequence[int], int | None]:
        if self._whole_layers:
            return first, self._stages.starts, None
        cut = filled_cut(self._free, self._stages.places, first)
        gain = 1 - cut.period_ps / first.period_ps
        self._say("intra-layer", f"slowest stage {format_time_ps(cut.period_ps)}, {100 * gain:.1f} % less")
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
        self._say("memory", f"{shortage}; with layers moved all fit, slowest stage {format_time_ps(better.period_ps)}")
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
