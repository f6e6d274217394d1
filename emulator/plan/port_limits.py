"""The memory port as a limit on the pieces of a cut: what a board has to shed of a piece, and how long that takes."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence

from ..cluster import Board, Cluster
from ..mapping import Mapping, Slice, SliceNeeds, cut_channels, shed, slice_needs
from ..network import Network


class PortLimits:
    """The time of memory ports for pieces of the row of all channels (`mapping.PieceMemory`).

    How many samples are in flight where a piece begins is taken from a mapping that has been timed.
    """

    def __init__(self, network: Network, cluster: Cluster, timed: Mapping, in_flight: Sequence[int]) -> None:
        self._layers, self._cluster = network.layers, cluster
        self._first = list(itertools.accumulate(map(cut_channels, network.layers), initial=0))
        firsts = (slices[0] for slices in timed.devices)
        self._begins = [self._first[part.layer.index] + part.begin for part in firsts]
        self._known: dict[tuple[int, int, int, int], SliceNeeds] = {}
        # Nowhere more than further left, so that a part of a piece never needs more than the piece.
        self._in_flight = list(itertools.accumulate(reversed(in_flight), max))[::-1]

    def is_within(self, begin: int, end: int, board: Board, time_ps: int) -> bool:
        """Return whether the port moves in `time_ps` what a sample needs of all data that can be off chip and must be.

        Buffers that always stay on chip may still be too large; that is reported, and no cut can help it.
        """
        in_flight = self._in_flight_from(begin)
        needs = [self._needs(*where, in_flight) for where in self._slices(begin, end)]
        excess = sum(held.banks for held in needs) - self._cluster.banks_for_buffers(board)
        if excess <= 0:
            return True
        excess = min(excess, sum(held.banks - held.fixed_banks for held in needs))
        _, freed, _ = shed(needs, excess, board.off_chip_mbytes_per_s * time_ps // 1_000_000)
        return freed >= excess

    def in_flight_of(self, mapping: Mapping) -> tuple[int, ...]:
        """Return the samples in flight that the devices of a mapping are taken to have."""
        firsts = (slices[0] for slices in mapping.devices)
        return tuple(self._in_flight_from(self._first[part.layer.index] + part.begin) for part in firsts)

    def _in_flight_from(self, begin: int) -> int:
        return self._in_flight[bisect.bisect_right(self._begins, begin) - 1]

    def _slices(self, begin: int, end: int) -> list[tuple[int, int, int]]:
        """Return the layer, the first channel and the end of each slice of a piece."""
        first = self._first
        layers = range(bisect.bisect_right(first, begin) - 1, bisect.bisect_left(first, end))
        return [(i, max(begin, first[i]) - first[i], min(end, first[i + 1]) - first[i]) for i in layers]

    def _needs(self, layer: int, begin: int, end: int, in_flight: int) -> SliceNeeds:
        key = layer, begin, end, in_flight
        found = self._known.get(key)
        if found is None:
            part = Slice(self._layers[layer], begin, end)
            found = self._known[key] = slice_needs(part, in_flight, self._cluster.parameter_copies)
        return found
