"""Rings: each rank sends to its right neighbour and receives from the left one, in every round.

INCEPTIONN (MICRO 2018), Algorithm 1: P1 leaves each rank with the sum of one piece, a
reduce-scatter; P2 sends these sums round, an all-gather. In round s, from 1, the rank at place i
sends piece i - s + 1. The topology orders the ring (`Topology.ring_places`): pieces are numbered
along it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import ClassVar

from ..topology import Topology
from .collective import ON_SWITCH, Collective, Goal, Phase, Round, Step, Way


def ring_rounds(nodes: Sequence[int]) -> Iterator[Round]:
    """Yield the rounds of a ring of nodes in its order, each with a piece at first: P1, then P2."""
    size = len(nodes)
    for number in range(1, 2 * size - 1):
        steps = []
        for place, node in enumerate(nodes):
            piece = (place - number + 1) % size
            right = nodes[(place + 1) % size]
            steps.append(Step(node, right, piece, piece + 1, number < size, Way.SUM_AFTER_SENDING))
        yield steps


def in_ring(nodes: Sequence[int], topology: Topology) -> list[int]:
    """Return nodes in the order of their ring."""
    return [nodes[place] for place in topology.ring_places(len(nodes), nodes).tolist()]


@dataclasses.dataclass(frozen=True)
class Ring(Collective):
    """INCEPTIONN's ring: 2 (p - 1) rounds, each of a p-th of the data."""

    name: ClassVar[str] = "ring"

    def phases(self, ranks: int, topology: Topology = ON_SWITCH) -> list[Phase]:
        """See `Collective`."""
        return [Phase(ranks, [*ring_rounds(in_ring(range(ranks), topology))])]


@dataclasses.dataclass(frozen=True)
class RingScatter(Collective):
    """A ring that leaves each rank with the sum of one piece: p - 1 rounds."""

    name: ClassVar[str] = "ring-reduce-scatter"
    goal: ClassVar[Goal] = Goal.REDUCE_SCATTER

    def phases(self, ranks: int, topology: Topology = ON_SWITCH) -> list[Phase]:
        """See `Collective`: piece r ends at rank r, so it begins at its right neighbour."""
        nodes, rounds = in_ring(range(ranks), topology), []
        for number in range(1, ranks):
            steps = []
            for place, node in enumerate(nodes):
                piece = nodes[(place - number) % ranks]
                right = nodes[(place + 1) % ranks]
                steps.append(Step(node, right, piece, piece + 1, adds=True))
            rounds.append(steps)
        return [Phase(ranks, rounds)]


@dataclasses.dataclass(frozen=True)
class RingGather(Collective):
    """A ring round which each rank's block goes: p - 1 rounds."""

    name: ClassVar[str] = "ring-allgather"
    goal: ClassVar[Goal] = Goal.ALL_GATHER

    def phases(self, ranks: int, topology: Topology = ON_SWITCH) -> list[Phase]:
        """See `Collective`."""
        nodes, rounds = in_ring(range(ranks), topology), []
        for number in range(1, ranks):
            steps = []
            for place, node in enumerate(nodes):
                block = nodes[(place - number + 1) % ranks]
                steps.append(Step(node, nodes[(place + 1) % ranks], block, block + 1))
            rounds.append(steps)
        return [Phase(ranks, rounds)]
