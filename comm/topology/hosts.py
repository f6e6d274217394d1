"""Boards in hosts: those of a host are joined by one kind of link, hosts by another."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

from .topology import Nodes, Topology


@dataclasses.dataclass(frozen=True)
class Hosts(Topology):
    """`boards` nodes in each host, numbered host by host; the last one may have fewer.

    Bandwidth and latency are those within a host. A host has one link to all others: a message on
    it takes `slower` times as long, and `latencies` latencies, and those of a round share it.

        [0 1 2]    [3 4 5]    [6 7]     within a host each node has a port of its own
           |          |         |
           +----------+---------+       one link of each host to the others
    """

    name: ClassVar[str] = "hosts"
    joins_boards: ClassVar[bool] = False

    boards: int = 2
    slower: int = 1
    latencies: int = 1

    def __post_init__(self) -> None:
        for key in ("boards", "slower", "latencies"):
            if getattr(self, key) < 1:
                raise ValueError(f"`{key}` = {getattr(self, key)}: should be 1 or more")

    def route(self, sender: int, receiver: int) -> tuple[tuple[int, int], ...]:
        """See `Topology`."""
        return ((sender, receiver),) * self.hops(sender, receiver) if sender != receiver else ()

    def hops(self, sender: Nodes, receiver: Nodes) -> Nodes:
        """See `Topology`."""
        apart = abs(sender // self.boards - receiver // self.boards)
        return 1 + (self.latencies - 1) * (apart > 0)

    def shares(self, messages: Sequence[tuple[int, int]]) -> list[int]:
        """See `Topology`: `slower` for each message out of the host, or into the other, if more."""
        hosts = [(sender // self.boards, receiver // self.boards) for sender, receiver in messages]
        leaving = Counter(one for one, other in hosts if one != other)
        coming = Counter(other for one, other in hosts if one != other)
        return [
            self.slower * max(leaving[one], coming[other]) if one != other else 1
            for one, other in hosts
        ]
