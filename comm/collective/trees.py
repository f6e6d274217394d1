"""Trees: binomial ones, in ceil(log2 p) rounds, and linear ones, in which the root alone sends or
receives.

A rank of a binomial tree that has the data is responsible for the ranks behind it, and sends to the
one in their middle, which becomes responsible for the second half; so, in a chain, no two messages
of a round share a link. A reduction goes the same way back. Of 8 ranks:

    round 1    0 ----------> 4
    round 2    0 ----> 2     4 ----> 6
    round 3    0 > 1   2 > 3 4 > 5   6 > 7
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import ClassVar

from ..topology import Topology
from .collective import ON_SWITCH, ROOT, Collective, Goal, Phase, Round, Step, Way


def broadcast_rounds(nodes: int) -> Iterator[list[tuple[int, int]]]:
    """Yield the (sender, receiver) pairs of each round of a binomial tree from the first node:
    ceil(log2(nodes)).

    A node that has the message is responsible for the nodes behind it; it sends the message to the
    one in their middle, which becomes responsible for the second half. So, in a chain, no two
    messages of a round share a link.
    """
    held = [(0, nodes)]
    while max(count for _, count in held) > 1:
        halves = [(first, -(-count // 2), count // 2) for first, count in held]
        yield [(first, first + near) for first, near, far in halves if far]
        held = [
            half
            for first, near, far in halves
            for half in ((first, near), (first + near, far))
            if half[1]
        ]


def broadcast_tree(nodes: Sequence[int], way: Way = Way.PLAIN) -> Iterator[Round]:
    """Yield the rounds of a binomial tree from the first of some nodes, of one piece."""
    for pairs in broadcast_rounds(len(nodes)) if len(nodes) > 1 else ():
        yield [Step(nodes[a], nodes[b], 0, 1, way=way) for a, b in pairs]


def reduce_tree(nodes: Sequence[int]) -> Iterator[Round]:
    """Yield the rounds of a binomial tree to the first of some nodes, of one piece."""
    for steps in reversed([*broadcast_tree(nodes)]):
        yield [Step(step.receiver, step.sender, 0, 1, adds=True) for step in steps]


@dataclasses.dataclass(frozen=True)
class BinomialBroadcast(Collective):
    """The root's data down a binomial tree."""

    name: ClassVar[str] = "binomial-broadcast"
    goal: ClassVar[Goal] = Goal.BROADCAST

    def phases(self, ranks: int, topology: Topology = ON_SWITCH) -> list[Phase]:
        """See `Collective`."""
        return [Phase(1, [*broadcast_tree(range(ranks))])]


@dataclasses.dataclass(frozen=True)
class BinomialReduce(Collective):
    """Sums up a binomial tree."""

    name: ClassVar[str] = "binomial-reduce"
    goal: ClassVar[Goal] = Goal.REDUCE

    def phases(self, ranks: int, topology: Topology = ON_SWITCH) -> list[Phase]:
        """See `Collective`."""
        return [Phase(1, [*reduce_tree(range(ranks))])]


@dataclasses.dataclass(frozen=True)
class Tree(Collective):
    """A sum up a binomial tree, and down again: 2 ceil(log2 p) rounds, each of all data."""

    name: ClassVar[str] = "tree"

    def phases(self, ranks: int, topology: Topology = ON_SWITCH) -> list[Phase]:
        """See `Collective`."""
        return [Phase(1, [*reduce_tree(range(ranks)), *broadcast_tree(range(ranks))])]


def _others(ranks: int) -> range:
    return range(1, ranks)


@dataclasses.dataclass(frozen=True)
class LinearBroadcast(Collective):
    """The root sends to one rank after the other."""

    name: ClassVar[str] = "linear-broadcast"
    goal: ClassVar[Goal] = Goal.BROADCAST

    def phases(self, ranks: int, topology: Topology = ON_SWITCH) -> list[Phase]:
        """See `Collective`."""
        return [Phase(1, [[Step(ROOT, rank, 0, 1) for rank in _others(ranks)]])]


@dataclasses.dataclass(frozen=True)
class LinearReduce(Collective):
    """The root receives from all ranks, and adds one after the other."""

    name: ClassVar[str] = "linear-reduce"
    goal: ClassVar[Goal] = Goal.REDUCE

    def phases(self, ranks: int, topology: Topology = ON_SWITCH) -> list[Phase]:
        """See `Collective`."""
        return [Phase(1, [[Step(rank, ROOT, 0, 1, adds=True) for rank in _others(ranks)]])]


@dataclasses.dataclass(frozen=True)
class Linear(Collective):
    """The root adds what all others send, and sends the sum to one after the other."""

    name: ClassVar[str] = "linear"

    def phases(self, ranks: int, topology: Topology = ON_SWITCH) -> list[Phase]:
        """See `Collective`."""
        [up], [down] = LinearReduce().phases(ranks), LinearBroadcast().phases(ranks)
        return [Phase(1, [*up.rounds, *down.rounds])]


@dataclasses.dataclass(frozen=True)
class LinearGather(Collective):
    """All ranks send their blocks to the root."""

    name: ClassVar[str] = "linear-gather"
    goal: ClassVar[Goal] = Goal.GATHER

    def phases(self, ranks: int, topology: Topology = ON_SWITCH) -> list[Phase]:
        """See `Collective`."""
        steps = [Step(rank, ROOT, rank, rank + 1) for rank in _others(ranks)]
        return [Phase(ranks, [steps])]


@dataclasses.dataclass(frozen=True)
class LinearScatter(Collective):
    """The root sends each rank its block."""

    name: ClassVar[str] = "linear-scatter"
    goal: ClassVar[Goal] = Goal.SCATTER

    def phases(self, ranks: int, topology: Topology = ON_SWITCH) -> list[Phase]:
        """See `Collective`."""
        steps = [Step(ROOT, rank, rank, rank + 1) for rank in _others(ranks)]
        return [Phase(ranks, [steps])]
