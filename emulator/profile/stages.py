"""Stages as the exploration sees them: any consecutive piece of a network, on any device of a chain.

A *row* of places runs through the network; a cut is at a place. Cuts between layers are at `starts`; the places between
are cuts within a layer.
"""

from __future__ import annotations

import abc
import bisect
from collections.abc import Sequence

from ..schedule import StageCosts

PIECES = 64
"""The most pieces of a layer that a cut within it counts."""


class Stages(abc.ABC):
    """Costs of the pieces of a network, for micro-batches of `samples`, on a chain of devices of the named kinds."""

    name: str
    layers: tuple[str, ...]
    starts: tuple[int, ...]
    kinds: tuple[str, ...]
    samples: int

    @property
    def end(self) -> int:
        """The place behind the last layer."""
        return self.starts[-1]

    @property
    def devices(self) -> int:
        """Number of devices."""
        return len(self.kinds)

    @property
    @abc.abstractmethod
    def places(self) -> Sequence[int]:
        """All places of a cut, in ascending order, the beginning and the end included."""

    @abc.abstractmethod
    def costs(
        self, begin: int, end: int, device: int, kept: int, *, weight_copies: int = 1, together: bool = False
    ) -> StageCosts:
        """Return the costs of the layers from place `begin` to `end` on a device, without messages.

        Args:
            begin, end: places of the row.
            device: the device's number in the chain.
            kept: micro-batches whose features are kept at a time.
            weight_copies: versions of the weights.
            together: whether weights are off chip as soon as not all of them fit.

        Raises:
            DoesNotFit: they need more memory than there is.
        """

    @abc.abstractmethod
    def least_ps(self, begin: int, end: int, device: int) -> int:
        """Return a time that F and B of a micro-batch take at least: all on chip. It adds up, but for rounding up."""

    @abc.abstractmethod
    def message_bytes(self, place: int) -> int:
        """Return the bytes of a micro-batch that cross a cut, in the fuller direction."""

    def layer_of(self, place: int) -> int:
        """Return the layer that begins at a place, or that the place is in."""
        return bisect.bisect_right(self.starts, place) - 1

    def said(self, begin: int, end: int) -> str:
        """Return the layers of a piece as text: `conv1_1 ... conv2_2`, with `part of` where one is cut."""
        first, last = self.layer_of(begin), self.layer_of(end - 1)
        names = [self.layers[each] for each in dict.fromkeys((first, last))]
        cut = begin != self.starts[first] or end != self.starts[last + 1]
        return " ... ".join(names) + " (cut within)" * cut
