"""A ring of nodes: a chain whose ends have a link, too."""

from __future__ import annotations

import dataclasses
import itertools
from typing import ClassVar

import numpy as np

from .topology import Nodes, Topology


@dataclasses.dataclass(frozen=True)
class Cycle(Topology):
    """Nodes in a ring; a message takes the shorter way round, and of equal ones that of rising
    numbers.
    """

    name: ClassVar[str] = "ring"

    def route(self, sender: int, receiver: int) -> tuple[tuple[int, int], ...]:
        """See `Topology`: the shorter way round."""
        assert self.nodes is not None
        way = shorter_way(sender, receiver, self.nodes)
        return tuple(itertools.pairwise(way))

    def hops(self, sender: Nodes, receiver: Nodes) -> Nodes:
        """See `Topology`."""
        assert self.nodes is not None
        onwards = (receiver - sender) % self.nodes
        if isinstance(onwards, np.ndarray):
            return np.minimum(onwards, self.nodes - onwards)
        return min(onwards, self.nodes - onwards)


def shorter_way(begin: int, end: int, length: int) -> list[int]:
    """Return the places from one to another of a ring, both with them: of equally long ways that of
    rising numbers.
    """
    onwards = (end - begin) % length
    step, count = (1, onwards) if 2 * onwards <= length else (-1, length - onwards)
    return [(begin + step * at) % length for at in range(count + 1)]
