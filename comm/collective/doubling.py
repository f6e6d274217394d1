"""Recursive doubling and halving: ranks exchange with partners that are 1, 2, 4, ... apart; their
number is a power of two.

Doubling exchanges all data in each of log2 p rounds, best for short messages. Halving and doubling
first exchanges a half, then a quarter, and so on, until each rank has the sum of one piece; then
the same way back: 2 (p - 1) / p of the data in 2 log2 p rounds (Rabenseifner, 2004). Pieces of 4
ranks, of which rank 0 keeps those in brackets:

    round 1    0 <> 2: [0 1] 2 3      round 2    0 <> 1: [0] 1      then 0 <> 1, 0 <> 2 back
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from ..topology import Topology
from .collective import ON_SWITCH, Collective, Phase, Step


@dataclasses.dataclass(frozen=True)
class _OfPowersOfTwo(Collective):
    """A collective of 2, 4, 8, ... ranks."""

    def problem(self, ranks: int) -> str | None:
        """See `Collective`."""
        if ranks & (ranks - 1) == 0:
            return None
        return f"{self.name} is of 2, 4, 8, ... ranks, not of {ranks}"


@dataclasses.dataclass(frozen=True)
class Doubling(_OfPowersOfTwo):
    """Recursive doubling: log2 p rounds, each of all data."""

    name: ClassVar[str] = "doubling"

    def phases(self, ranks: int, topology: Topology = ON_SWITCH) -> list[Phase]:
        """See `Collective`."""
        rounds = []
        for apart in _powers(ranks):
            rounds.append([Step(rank, rank ^ apart, 0, 1, adds=True) for rank in range(ranks)])
        return [Phase(1, rounds)]


@dataclasses.dataclass(frozen=True)
class HalvingDoubling(_OfPowersOfTwo):
    """Recursive halving, then doubling: 2 log2 p rounds of a half, a quarter, ... of the data."""

    name: ClassVar[str] = "halving-doubling"

    def phases(self, ranks: int, topology: Topology = ON_SWITCH) -> list[Phase]:
        """See `Collective`."""
        there, back = [], []
        for apart in reversed(_powers(ranks)):
            halving, doubling = [], []
            for rank in range(ranks):
                # The partner's half of the pieces that both have; it comes back as a sum.
                first = (rank ^ apart) // apart * apart
                halving.append(Step(rank, rank ^ apart, first, first + apart, adds=True))
                doubling.append(Step(rank ^ apart, rank, first, first + apart))
            there.append(halving)
            back.append(doubling)
        return [Phase(ranks, [*there, *reversed(back)])]


def _powers(ranks: int) -> list[int]:
    """Return 1, 2, 4, ... below the number of ranks."""
    return [1 << bit for bit in range((ranks - 1).bit_length())]
