"""The interface of a topology: the nodes that exchange gradients, and the links between them.

The times of an exchange (`comm/exchange/time.py`) count a latency for each link of a route and the bandwidth once, as
nodes on the way forward cut-through. They are right where no two messages of a round share a direction of a link: the
messages of a ring in the order of `ring_places`, and those of a broadcast's tree. tests/comm/test_topology.py checks
both for every topology.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Mapping
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...kernels import subclasses

Nodes = TypeVar("Nodes", int, NDArray[np.int64])
"""The number of a node, or an array of such numbers."""


@dataclasses.dataclass(frozen=True)
class Topology(abc.ABC):
    """The links among `nodes` nodes, numbered from 0; how many there are is known once a run is planned."""

    name: ClassVar[str]
    """As in the key `topology` of a cluster's `[network]`."""

    nodes: int | None = None

    @abc.abstractmethod
    def route(self, sender: int, receiver: int) -> tuple[tuple[int, int], ...]:
        """Return the links that a message passes, in order, each with the nodes at its ends; none to the same node."""

    def hops(self, sender: Nodes, receiver: Nodes) -> Nodes:
        """Return the number of latencies between two nodes, or between those of two arrays, one by one."""
        if isinstance(sender, np.ndarray):
            pairs = np.broadcast(sender, receiver)
            return np.array([len(self.route(int(a), int(b))) for a, b in pairs], np.int64).reshape(pairs.shape)
        return len(self.route(sender, receiver))

    def ring_places(self, workers: int) -> NDArray[np.int64]:
        """Return the places of a ring's workers among their nodes, in the ring's order."""
        return np.arange(workers)


@functools.cache
def topologies() -> Mapping[str, Topology]:
    """Return all topologies by their names, of no number of nodes yet."""
    kinds = subclasses(__package__, Topology)  # type: ignore[type-abstract]
    return {kind.name: kind() for kind in kinds}
