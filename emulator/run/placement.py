"""Assignment of devices to ranks: neighbours together, and the same work for each rank.

A cut that is fair to boards need not be fair to ranks: a board whose memory port binds computes little. What a rank's
processor has to do is estimated (`Plan.work`) from multiply-accumulates and from weights, which are read and written
from memory for each micro-batch.
"""

from __future__ import annotations

import dataclasses
import itertools
from bisect import bisect_right
from collections.abc import Sequence

_NEAR = 1.1
"""The busiest rank may have this much more than the least found where each rank has as many devices instead."""
_TURNS = 64
"""How many of the last devices are tried as the first rank's."""


@dataclasses.dataclass(frozen=True)
class Placement:
    """The rank of each device. A rank has consecutive devices; the first one may have the last devices, too."""

    hosts: tuple[int, ...]

    @classmethod
    def of(cls, work: Sequence[int], ranks: int) -> Placement:
        """Return a placement with little work on the busiest rank; `work` is that of each device.

        Each rank has as many devices as the others, but for one, where that is as good. Ranks beyond the number of
        devices have none.
        """
        count = len(work)
        ranks = min(ranks, count)
        even = cls(tuple(device * ranks // count for device in range(count)))
        found = even
        if 1 < ranks < count:
            tried = [_around(work, ranks, turn) for turn in range(min(_TURNS, count))]
            found = min(tried, key=lambda at: at.most(work))
        return even if even.most(work) <= _NEAR * found.most(work) else found

    @property
    def devices(self) -> int:
        """Number of devices."""
        return len(self.hosts)

    def most(self, work: Sequence[int]) -> int:
        """Return the work of the busiest rank."""
        return max(self.by_rank(work, max(self.hosts) + 1))

    def by_rank(self, work: Sequence[int], ranks: int) -> list[int]:
        """Return the work of each of `ranks` ranks."""
        sums = [0] * ranks
        for host, own in zip(self.hosts, work, strict=True):
            sums[host] += own
        return sums

    def host(self, device: int) -> int:
        """Return the rank of a device."""
        return self.hosts[device]

    def hosted(self, rank: int) -> list[int]:
        """Return the devices of a rank."""
        return [device for device, host in enumerate(self.hosts) if host == rank]

    def described(self, rank: int) -> str:
        """Return the devices of a rank as text."""
        hosted = self.hosted(rank)
        runs = [list(run) for _, run in itertools.groupby(hosted, key=lambda device: device - hosted.index(device))]
        spans = [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
        return f"device{'s' * (len(hosted) > 1)} {', '.join(spans)}" if hosted else "no device"


def _around(work: Sequence[int], ranks: int, turn: int) -> Placement:
    """Return the best placement whose first rank begins with the last `turn` devices, and goes on with the first."""
    count = len(work)
    turned = [*work[count - turn :], *work[: count - turn]]
    sums = [0, *itertools.accumulate(turned)]
    least, enough = max(turned), sums[-1]
    while least < enough:
        middle = (least + enough) // 2
        if _ends(sums, ranks, middle) is None:
            least = middle + 1
        else:
            enough = middle
    ends = _ends(sums, ranks, enough)
    assert ends is not None  # all the work is enough for one
    hosts = [bisect_right(ends, place) for place in range(count)]
    return Placement((*hosts[turn:], *hosts[:turn]))


def _ends(sums: Sequence[int], ranks: int, most: int) -> list[int] | None:
    """Return where each rank's devices end if none has more work than `most`; None if that cannot be.

    `sums` are those of the work up to each device. Each rank has a device.
    """
    ends, count = [0], len(sums) - 1
    for left in range(ranks - 1, -1, -1):
        ends.append(min(bisect_right(sums, sums[ends[-1]] + most) - 1, count - left))
    return ends[1:] if ends[-1] == count else None
