"""FPDeep's two phases of partition (section 3.2), run one after the other.

The coarse phase gives whole layers to boards (mapping/coarse.py). The fine phase keeps its cuts and moves each of them
by channels towards the middle of the work of the two boards beside it, until none moves. The emulator's own partition
cuts the row of channels in one phase and heeds links, too.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence

from ....mapping import channel_works, coarse, cut_channels, imbalance
from ..measure import Measure, Measured
from .evidence import NETWORKS, cluster, mapping

_MOST_SWEEPS = 10_000


class _Channels:
    """The work before each boundary between channels of a network's convolutions, in multiply-accumulates."""

    def __init__(self, name: str) -> None:
        found = mapping(name)
        self.boards = len(found.devices) - len(found.off_chip_devices)
        layers = [layer for layer in found.network.layers if layer.convolves]
        each = [sum(work.macs for work in channel_works(layer)) for layer in layers]
        counts = [cut_channels(layer) for layer in layers]
        self.first = [*itertools.accumulate(counts, initial=0)]
        """The boundary before each layer, and the last."""
        repeated = (macs for macs, count in zip(each, counts, strict=True) for _ in range(count))
        self.before = [*itertools.accumulate(repeated, initial=0)]

    def variance(self, cuts: Sequence[int]) -> float:
        """Return V of equation (5)."""
        return imbalance([self.before[end] - self.before[begin] for begin, end in itertools.pairwise(cuts)])

    def coarse(self) -> list[int]:
        """Return the boundaries between boards after the coarse phase, with both ends of the row."""
        work = [self.before[end] - self.before[begin] for begin, end in itertools.pairwise(self.first)]
        cuts = [0]
        for group in coarse(work, [cluster().board(device).capacity for device in range(self.boards)]):
            begin, end = self.first[group.layers.start], self.first[group.layers.stop]
            cuts += [begin + round((end - begin) * n / len(group.devices)) for n in range(1, len(group.devices) + 1)]
        return cuts

    def fine(self, cuts: Sequence[int]) -> list[int]:
        """Return the boundaries after the fine phase."""
        found = list(cuts)
        for _ in range(_MOST_SWEEPS):
            previous = list(found)
            for place in range(1, len(found) - 1):
                found[place] = self._middle(found[place - 1], found[place + 1])
            if found == previous:
                break
        return found

    def _middle(self, begin: int, end: int) -> int:
        """Return the boundary between two others at which the work between them is halved, or nearly."""
        middle = (self.before[begin] + self.before[end]) / 2
        after = bisect.bisect_left(self.before, middle, begin + 1, end - 1)
        return min((max(begin + 1, after - 1), after), key=lambda boundary: abs(self.before[boundary] - middle))


def _two_phases() -> Measured:
    """Measure V after both phases over V after the coarse one."""
    ratios, said = [], []
    for name in NETWORKS:
        channels, balance = _Channels(name), mapping(name).balance
        assert balance is not None, "partition states it"
        cuts = channels.coarse()
        coarse_v, fine_v = channels.variance(cuts), channels.variance(channels.fine(cuts))
        ratios.append(fine_v / coarse_v)
        said.append(f"{name} {coarse_v:.3g} to {fine_v:.3g}, in one phase {balance.fine:.3g}")
    return Measured(ratios, f"V of equation (5) after both phases over V after the coarse one; {'; '.join(said)}")


MEASURES: dict[str, Measure] = {"fpdeep-partition-two-phases": _two_phases}
