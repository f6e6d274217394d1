"""All-to-all: each rank has a block for each other one; block s p + d goes from rank s to rank d.

In order, all ranks send to rank 0 first, then to rank 1, and so on, and wait for one another there:
2 p - 3 messages behind one another. In pairs, each sends to the one that is 1, 2, ... behind it, so
that no two meet: p - 1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import ClassVar

from ..topology import Topology
from .collective import ON_SWITCH, Collective, Goal, Phase, Step


def _to_all(ranks: int, receiver: Callable[[int, int], int]) -> list[Phase]:
    """Return p - 1 rounds in which each rank sends a block; the function of rank and round, from 1,
    says to whom.
    """
    rounds = []
    for number in range(1, ranks):
        steps = []
        for rank in range(ranks):
            block = rank * ranks + receiver(rank, number)
            steps.append(Step(rank, receiver(rank, number), block, block + 1))
        rounds.append(steps)
    return [Phase(ranks * ranks, rounds)]


@dataclasses.dataclass(frozen=True)
class InOrder(Collective):
    """All send to rank 0 first, then to rank 1, and so on."""

    name: ClassVar[str] = "alltoall-in-order"
    goal: ClassVar[Goal] = Goal.ALL_TO_ALL

    def phases(self, ranks: int, topology: Topology = ON_SWITCH) -> list[Phase]:
        """See `Collective`."""
        return _to_all(ranks, lambda rank, number: number - (number <= rank))


@dataclasses.dataclass(frozen=True)
class InPairs(Collective):
    """Each sends to the rank that is 1, 2, ... behind it."""

    name: ClassVar[str] = "alltoall-in-pairs"
    goal: ClassVar[Goal] = Goal.ALL_TO_ALL

    def phases(self, ranks: int, topology: Topology = ON_SWITCH) -> list[Phase]:
        """See `Collective`."""
        return _to_all(ranks, lambda rank, number: (rank + number) % ranks)
