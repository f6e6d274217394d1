"""Stages on boards: the roofline of any piece of a network."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence

from ..cluster import Board
from ..mapping import COPIES, VALUE_BYTES, Slice, cut_channels
from ..network import Network
from ..schedule import StageCosts
from .needs import PartNeeds, boundary_bytes, cut_bytes
from .roofline import DoesNotFit, stage_of_needs
from .stages import PIECES, Stages


class BoardStages(Stages):
    """Stages on boards, by the roofline."""

    def __init__(
        self,
        network: Network,
        boards: Sequence[Board],
        samples: int,
        value_bytes: int = VALUE_BYTES,
        copies: int = COPIES,
    ) -> None:
        """Take a network, a chain's boards, a micro-batch's samples, a value's bytes and a parameter's arrays."""
        self.name, self.samples = network.name, samples
        self.layers = tuple(layer.name for layer in network.layers)
        self.kinds = tuple(board.name for board in boards)
        self._network, self._boards, self._value_bytes = network, tuple(boards), value_bytes
        self._copies = copies
        channels = [cut_channels(layer) for layer in network.layers]
        macs = [2 * layer.macs + (layer.eb_macs if layer.has_eb else 0) for layer in network.layers]
        self.starts = tuple(itertools.accumulate(channels, initial=0))
        self._macs = tuple(itertools.accumulate(macs, initial=0))
        self._of_part = functools.cache(self._part_needs)
        self._of_stage = functools.cache(self._stage)
        self._bytes_at = functools.cache(self._message_bytes)

    @functools.cached_property
    def places(self) -> Sequence[int]:
        """See `Stages`: every channel, or every few channels where a layer has many; recurrent layers stay whole.

        Devices that share one exchange states within an action, and actions are timed as a whole.
        """
        found = [
            range(first, behind, behind - first if layer.operation.recurs else max(1, (behind - first) // PIECES))
            for layer, (first, behind) in zip(self._network.layers, itertools.pairwise(self.starts), strict=True)
        ]
        return [*itertools.chain.from_iterable(found), self.end]

    def costs(
        self, begin: int, end: int, device: int, kept: int, *, weight_copies: int = 1, together: bool = False
    ) -> StageCosts:
        """See `Stages`."""
        found = self._of_stage(begin, end, self._boards[device], kept, weight_copies, together)
        if isinstance(found, StageCosts):
            return found
        raise found.of_stage(device)

    def least_ps(self, begin: int, end: int, device: int) -> int:
        """See `Stages`."""
        board = self._boards[device]
        work = self._work(end) - self._work(begin)
        return self.samples * work * board.period_ps // board.multipliers

    def slices(self, begin: int, end: int) -> tuple[Slice, ...]:
        """Return the slices of a piece."""
        return tuple(
            Slice(
                self._network.layers[layer],
                max(begin, self.starts[layer]) - self.starts[layer],
                min(end, self.starts[layer + 1]) - self.starts[layer],
            )
            for layer in range(self.layer_of(begin), self.layer_of(end - 1) + 1)
        )

    def message_bytes(self, place: int) -> int:
        """See `Stages`."""
        return self._bytes_at(place)

    def _work(self, place: int) -> int:
        """Return the multiply-accumulates of FP, EB and PG before a place, for a sample."""
        layer = self.layer_of(place)
        if place == self.starts[layer]:
            return self._macs[layer]
        channels = self.starts[layer + 1] - self.starts[layer]
        inside = (self._macs[layer + 1] - self._macs[layer]) // channels
        return self._macs[layer] + (place - self.starts[layer]) * inside

    def _message_bytes(self, place: int) -> int:
        layer = self.layer_of(place)
        if place in (0, self.end):
            return 0
        if place == self.starts[layer]:
            return self.samples * boundary_bytes(self._network, layer - 1, self._value_bytes)
        [right] = self.slices(place, self.starts[layer + 1])
        return self.samples * cut_bytes(right.layer, right, self._value_bytes)

    def _part_needs(self, layer: int, begin: int, end: int) -> PartNeeds:
        return PartNeeds.of(Slice(self._network.layers[layer], begin, end), self._value_bytes, self._copies)

    def _stage(
        self, begin: int, end: int, board: Board, kept: int, weight_copies: int, together: bool
    ) -> StageCosts | DoesNotFit:
        needs = [self._of_part(part.layer.index, part.begin, part.end) for part in self.slices(begin, end)]
        try:
            return stage_of_needs(
                needs,
                board,
                self.samples,
                kept * self.samples,
                weight_copies=weight_copies,
                parameters_together=together,
            ).costs
        except DoesNotFit as shortage:
            return shortage
