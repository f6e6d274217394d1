"""Sums through other nodes and by levels: an aggregator, a switch that adds, groups and between
them (INCEPTIONN, MICRO 2018, section II-B and Fig. 1).

The aggregator is a node behind the ranks: it adds the data of one rank after the other, and its
reply goes down a binomial tree. A switch adds what comes in at all its ports, and sends the sum out
of all of them. In two levels the ranks of each group form their sum by a ring; then one of each
group forms the total, by a ring or an aggregator, and broadcasts it in its group.

    [0 1 2] [3 4 5] [6 7 8]    rings in groups; then 0, 3 and 6 form the total; then trees in groups
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import ClassVar

from ..topology import Topology, squarest
from .collective import ON_SWITCH, Collective, Phase, Round, Step, Way
from .rings import in_ring, ring_rounds
from .trees import broadcast_tree


def _up_to(ranks: Sequence[int], node: int) -> Phase:
    """Return the phase in which ranks send to an aggregator."""
    steps = [
        Step(rank, node, 0, 1, place > 0, Way.SUM_BEFORE_RECEIVING)
        for place, rank in enumerate(ranks)
    ]
    return Phase(1, [steps])


def _reply(ranks: Sequence[int], node: int) -> Phase:
    """Return the phase in which an aggregator broadcasts.

    Its neighbour is the last rank; so in a chain no two messages of a round share a link.
    """
    return Phase(1, [*broadcast_tree([node, *reversed(ranks)], Way.ACKNOWLEDGED)], of_weights=True)


@dataclasses.dataclass(frozen=True)
class AggregatorNode(Collective):
    """INCEPTIONN's baseline: a node beside the ranks adds, and broadcasts."""

    name: ClassVar[str] = "aggregator"
    nodes_beside: ClassVar[int] = 1

    def phases(self, ranks: int, topology: Topology = ON_SWITCH) -> list[Phase]:
        """See `Collective`."""
        return [_up_to(range(ranks), ranks), _reply(range(ranks), ranks)]


@dataclasses.dataclass(frozen=True)
class SwitchSum(Collective):
    """A switch adds what comes in at its ports, and sends the sum out of all of them."""

    name: ClassVar[str] = "switch"
    nodes_beside: ClassVar[int] = 1
    needs_switch: ClassVar[bool] = True

    def phases(self, ranks: int, topology: Topology = ON_SWITCH) -> list[Phase]:
        """See `Collective`."""
        port = Way.AT_A_PORT_OF_ITS_OWN
        up = [Step(rank, ranks, 0, 1, adds=rank > 0, way=port) for rank in range(ranks)]
        return [Phase(1, [up, [Step(ranks, rank, 0, 1, way=port) for rank in range(ranks)]])]


@dataclasses.dataclass(frozen=True)
class _Levels(Collective):
    """Ranks in `groups` groups of equal size; by default the largest number up to a square root."""

    groups: int | None = None

    def problem(self, ranks: int) -> str | None:
        """See `Collective`."""
        if self.groups is None or (0 < self.groups <= ranks and ranks % self.groups == 0):
            return None
        return f"{self.name} of {self.groups} groups needs a multiple of as many ranks, not {ranks}"

    def members(self, ranks: int) -> list[range]:
        """Return the ranks of each group."""
        count = self.groups or squarest(ranks)[0]
        return [range(first, first + ranks // count) for first in range(0, ranks, ranks // count)]

    def _in_groups(self, ranks: int, topology: Topology) -> Phase:
        groups = self.members(ranks)
        rings = [ring_rounds(in_ring(group, topology)) for group in groups]
        return Phase(len(groups[0]), [*map(_joined, zip(*rings, strict=True))])

    def _down(self, ranks: int, *, of_weights: bool) -> Phase:
        trees = [broadcast_tree(group, Way.ACKNOWLEDGED) for group in self.members(ranks)]
        return Phase(1, [*map(_joined, zip(*trees, strict=True))], of_weights)


@dataclasses.dataclass(frozen=True)
class RingOfRings(_Levels):
    """Rings in groups, a ring between them, trees in groups (INCEPTIONN, Fig. 1 (c))."""

    name: ClassVar[str] = "rings"

    def phases(self, ranks: int, topology: Topology = ON_SWITCH) -> list[Phase]:
        """See `Collective`."""
        firsts = [group[0] for group in self.members(ranks)]
        between = Phase(len(firsts), [*ring_rounds(in_ring(firsts, topology))])
        return [self._in_groups(ranks, topology), between, self._down(ranks, of_weights=False)]


@dataclasses.dataclass(frozen=True)
class RingsUnderAggregator(_Levels):
    """Rings in groups, an aggregator between them, trees in groups (INCEPTIONN, Fig. 1 (b))."""

    name: ClassVar[str] = "rings-aggregator"
    nodes_beside: ClassVar[int] = 1

    def phases(self, ranks: int, topology: Topology = ON_SWITCH) -> list[Phase]:
        """See `Collective`."""
        firsts = [group[0] for group in self.members(ranks)]
        between = [_up_to(firsts, ranks), _reply(firsts, ranks)]
        return [self._in_groups(ranks, topology), *between, self._down(ranks, of_weights=True)]


def _joined(rounds: Sequence[Round]) -> Round:
    return [*itertools.chain(*rounds)]
