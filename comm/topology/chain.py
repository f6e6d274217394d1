"""A chain of nodes, each with a link to the next one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from .topology import Nodes, Topology, folded


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

    def ring_places(self, workers: int, nodes: Sequence[int] | None = None) -> NDArray[np.int64]:
        """See `Topology`: always folded."""
        return folded(workers)
