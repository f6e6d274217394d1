"""What a cut is judged by: the time of each piece on its device, and of each message on its link."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

from ..cluster import Link
from ..profile import DoesNotFit, Stages
from ..schedule import StageCosts


@dataclasses.dataclass(frozen=True)
class Demand:
    """What a schedule asks of the devices.

    Each device keeps the features of `kept` micro-batches, and `weight_copies` versions of its weights; without these,
    one. Without `overlaps`, a device waits for the messages over the link behind it: 2 SR in addition to F + B.
    """

    kept: tuple[int, ...]
    overlaps: bool = True
    weight_copies: tuple[int, ...] = ()

    def copies(self, device: int) -> int:
        """Return the versions of its weights that a device keeps."""
        return self.weight_copies[device] if self.weight_copies else 1


class Pieces:
    """Pieces of a network on the devices of a chain, under a schedule; times are those of a micro-batch, in ps."""

    def __init__(self, stages: Stages, links: Sequence[Link], demand: Demand, *, heeds_memory: bool = True) -> None:
        """Take the stages, the links between the devices, and the schedule's demand.

        Without `heeds_memory`, a piece that needs more memory than there is takes the time of one that does not.
        """
        self.stages, self.links, self.demand = stages, tuple(links), demand
        self._heeds_memory = heeds_memory

    @property
    def devices(self) -> int:
        """Number of devices."""
        return self.stages.devices

    def work_ps(self, begin: int, end: int, device: int) -> int | None:
        """Return F + B of a piece; None if it does not fit."""
        try:
            return self._costs(begin, end, device).work_ps
        except DoesNotFit:
            return None if self._heeds_memory else max(1, self.least_ps(begin, end, device))

    def _costs(self, begin: int, end: int, device: int) -> StageCosts:
        demand = self.demand
        return self.stages.costs(begin, end, device, demand.kept[device], weight_copies=demand.copies(device))

    def least_ps(self, begin: int, end: int, device: int) -> int:
        """Return a time that no piece is below, which grows with the piece."""
        return self.stages.least_ps(begin, end, device)

    def link_ps(self, device: int, place: int) -> int:
        """Return the time of a message at a cut behind a device, 0 behind the last one."""
        if device >= len(self.links):
            return 0
        return self.links[device].transfer_ps(self.stages.message_bytes(place))

    def wait_ps(self, device: int, place: int) -> int:
        """Return how long a device waits for the messages of a micro-batch."""
        return 0 if self.demand.overlaps else 2 * self.link_ps(device, place)

    def costs(self, ends: Sequence[int]) -> tuple[StageCosts, ...]:
        """Return the costs of the stages of a cut.

        Raises:
            DoesNotFit: one needs more memory than there is.
        """
        found = []
        for device, (begin, end) in enumerate(itertools.pairwise((0, *ends))):
            costs = self._costs(begin, end, device)
            found.append(dataclasses.replace(costs, transfer_ps=self.link_ps(device, end)))
        return tuple(found)

    def period_ps(self, ends: Sequence[int]) -> int | None:
        """Return the time of the slowest stage of a cut; None if one does not fit."""
        slowest = 0
        for device, (begin, end) in enumerate(itertools.pairwise((0, *ends))):
            work = self.work_ps(begin, end, device)
            if work is None:
                return None
            slowest = max(slowest, work + self.wait_ps(device, end))
        return slowest

    def slowest_link_ps(self, ends: Sequence[int]) -> tuple[int, int]:
        """Return the time of the slowest message of a cut and its link; (0, 0) if there are no links."""
        times = [(self.link_ps(link, end), -link) for link, end in enumerate(ends[:-1])]
        longest, link = max(times, default=(0, 0))
        return longest, -link
