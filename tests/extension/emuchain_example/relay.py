"""A relay: sums go along the ranks to the last one, and back; `exchange = "relay:parts=4"`."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from emuchain.comm import Topology
from emuchain.comm.collective import Collective, Phase, Step


@dataclasses.dataclass(frozen=True)
class Relay(Collective):
    """Of several parts, one goes on while the next one comes."""

    name: ClassVar[str] = "relay"
    parts: int = 1

    def phases(self, ranks: int, topology: Topology | None = None) -> list[Phase]:
        """See `Collective`."""
        rounds = []
        for part in range(self.parts):
            for rank in range(ranks - 1):
                rounds.append([Step(rank, rank + 1, part, part + 1, adds=True)])
        for part in range(self.parts):
            for rank in reversed(range(ranks - 1)):
                rounds.append([Step(rank + 1, rank, part, part + 1)])
        return [Phase(self.parts, rounds)]
