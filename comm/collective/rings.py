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

from ..interconnect import Count
from ..topology import Topology
from .collective import ON_SWITCH, Collective, Goal, Phase, Round, Step, Way


def sent_block(worker: Count, step: int, workers: int) -> Count:
    """Return the block that a worker sends in a step, counted from 1; its right neighbour receives
    it.
    """
    return (worker - step + 1) % workers


def _passed_on(
    nodes: Sequence[int], pieces: Sequence[int], adds: bool, way: Way = Way.PLAIN
) -> Round:
    """Return the round in which each node of a ring sends its right neighbour a piece."""
    ends = zip(nodes, [*nodes[1:], nodes[0]], pieces, strict=True)
    return [Step(node, right, piece, piece + 1, adds, way) for node, right, piece in ends]


def ring_rounds(nodes: Sequence[int]) -> Iterator[Round]:
    """Yield the rounds of a ring of nodes in its order, each with a piece at first: P1, then P2."""
    size = len(nodes)
    for number in range(1, 2 * size - 1):
        pieces = [sent_block(place, number, size) for place in range(size)]
        yield _passed_on(nodes, pieces, number < size, Way.SUM_AFTER_SENDING)


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


def _blocks_round(ranks: int, topology: Topology, before: int, *, adds: bool) -> list[Phase]:
    """Return p - 1 rounds of blocks that are numbered as ranks are; in the first, each rank sends
    that of the rank as many places `before` it.
    """
    nodes = in_ring(range(ranks), topology)
    rounds = []
    for number in range(1, ranks):
        blocks = [nodes[sent_block(place - before, number, ranks)] for place in range(ranks)]
        rounds.append(_passed_on(nodes, blocks, adds))
    return [Phase(ranks, rounds)]


@dataclasses.dataclass(frozen=True)
class RingScatter(Collective):
    """A ring that leaves each rank with the sum of one piece: p - 1 rounds."""

    name: ClassVar[str] = "ring-reduce-scatter"
    goal: ClassVar[Goal] = Goal.REDUCE_SCATTER

    def phases(self, ranks: int, topology: Topology = ON_SWITCH) -> list[Phase]:
        """See `Collective`: piece r ends at rank r, so it begins at its right neighbour."""
        return _blocks_round(ranks, topology, 1, adds=True)


@dataclasses.dataclass(frozen=True)
class RingGather(Collective):
    """A ring round which each rank's block goes: p - 1 rounds."""

    name: ClassVar[str] = "ring-allgather"
    goal: ClassVar[Goal] = Goal.ALL_GATHER

    def phases(self, ranks: int, topology: Topology = ON_SWITCH) -> list[Phase]:
        """See `Collective`."""
        return _blocks_round(ranks, topology, 0, adds=False)
