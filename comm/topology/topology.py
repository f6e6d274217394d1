"""The interface of a topology: the nodes that exchange gradients, and the links between them.

The times of an exchange (`comm/exchange/time.py`) count a latency for each link of a route and the
bandwidth once, as nodes on the way forward cut-through. They are right where no two messages of a
round share a direction of a link: the messages of a ring in the order of `ring_places`, and those
of a broadcast's tree. Where some do, `shares` counts them. tests/comm/test_topology.py checks both
for every topology.

Data paths of a chain take the routes, too; what they share is a port of a board where `has_ports`,
or else a link.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...kernels import by_name, registry, spelled, subclasses

if TYPE_CHECKING:
    from typing_extensions import Self

Nodes = TypeVar("Nodes", int, NDArray[np.int64])
"""The number of a node, or an array of such numbers."""


class TopologyError(ValueError):
    """A topology cannot have a number of nodes."""


@dataclasses.dataclass(frozen=True)
class Topology(abc.ABC):
    """The links among `nodes` nodes, numbered from 0; how many there are is known once a run is
    planned.
    """

    name: ClassVar[str]
    """As in the key `topology` of a cluster's `[links]` or `[network]`."""
    has_ports: ClassVar[bool] = False
    """Whether all links of a node share one port."""
    joins_boards: ClassVar[bool] = True
    """Whether data paths of a chain can take its links; otherwise replicas alone can."""
    links_of_node: ClassVar[int] = 2
    """Links that end in a node."""

    nodes: int | None = None

    def problem(self, nodes: int) -> str | None:
        """Return why it cannot have this many nodes, such as `a torus of 4 x 6 has 24 places`; None
        if it can.
        """
        return None

    def among(self, nodes: int) -> Self:
        """Return the topology of this many nodes.

        Raises:
            TopologyError: it cannot have as many.
        """
        problem = self.problem(nodes)
        if problem is not None:
            raise TopologyError(problem)
        return dataclasses.replace(self, nodes=nodes)

    @abc.abstractmethod
    def route(self, sender: int, receiver: int) -> tuple[tuple[int, int], ...]:
        """Return the links that a message passes, in order, each with the nodes at its ends; none
        to the same node.
        """

    def hops(self, sender: Nodes, receiver: Nodes) -> Nodes:
        """Return the number of latencies between two nodes, or between those of two arrays, one by
        one.
        """
        if isinstance(sender, np.ndarray):
            pairs = np.broadcast(sender, receiver)
            return np.array([len(self.route(int(a), int(b))) for a, b in pairs], np.int64).reshape(
                pairs.shape
            )
        return len(self.route(sender, receiver))

    def ring_places(self, workers: int, nodes: Sequence[int] | None = None) -> NDArray[np.int64]:
        """Return the places of a ring's workers among their `nodes`, by default the first ones, in
        the ring's order.

        It is their own order or the folded one, whichever has the shorter longest hop.
        """
        numbers, own = (
            np.array(range(workers) if nodes is None else nodes, np.int64),
            np.arange(workers),
        )

        def longest(places: NDArray[np.int64]) -> int:
            order = numbers[places]
            return int(self.hops(np.roll(order, 1), order).max())

        # Of equals `min` takes the first: the ring is folded only where that shortens a hop.
        return min(own, folded(workers), key=longest)

    def shares(self, messages: Sequence[tuple[int, int]]) -> list[int]:
        """Return for each message of a round among how many it shares the fullest link of its
        route.
        """
        return [1] * len(messages)


def folded(workers: int) -> NDArray[np.int64]:
    """Return the places 0, 2, 4, ..., 5, 3, 1, so that neighbours in a ring are two apart at most.

    0   2   4        0 -> 2 -> 4 -> 5 -> 3 -> 1 -> 0: out over the even places, back over the odd ones
      1   3   5
    """
    places = np.arange(workers)
    return np.concatenate([places[::2], places[1::2][::-1]])


@registry
def topologies() -> Mapping[str, Topology]:
    """Return all topologies by their names, of no number of nodes yet."""
    kinds = by_name(subclasses(__package__, Topology))  # type: ignore[type-abstract]
    return {name: kind() for name, kind in kinds.items()}


def topology_of(text: str) -> Topology:
    """Return the topology that a text names, perhaps with keys of its own: `chain`, or
    `torus:shape=4x6`.

    Raises:
        ValueError: there is no such topology, or it has no such keys.
    """
    kind, keys = spelled(text, {name: type(one) for name, one in topologies().items()}, ("nodes",))
    return kind(**keys)
