"""A chain of nodes, each with a link to the next one."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from .topology import Nodes, Topology


@dataclasses.dataclass(frozen=True)
class Chain(Topology):
    """Nodes in a row; those on the way forward a message."""

    name: ClassVar[str] = "chain"

    def route(self, sender: int, receiver: int) -> tuple[tuple[int, int], ...]:
        """See `Topology`: one link after the other."""
        step = 1 if receiver > sender else -1
        return tuple((node, node + step) for node in range(sender, receiver, step))

    def hops(self, sender: Nodes, receiver: Nodes) -> Nodes:
        """See `Topology`."""
        return abs(sender - receiver)

    def ring_places(self, workers: int) -> NDArray[np.int64]:
        """See `Topology`: 0, 2, 4, ..., 5, 3, 1, so that neighbours of the ring are two links apart at most."""
        places = np.arange(workers)
        return np.concatenate([places[::2], places[1::2][::-1]])
