"""What recomputed layers of a device keep from F to B, or to R: what arrives, in place of their
features.

Layers that follow one another on a device are recomputed together, from what arrives at the first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .slices import SliceNumerics

Data = NDArray[np.float32]


class Arrived(NamedTuple):
    """What a slice takes in: the tensors that arrive, if it is the first of some, and the sums of
    the slices before it.
    """

    place: int
    held: dict[int, Data]
    partial: Data | None


class Recomputed:
    """The slices of a device whose features B computes again, of the layers with these indices; or
    R does, `apart` from it.
    """

    def __init__(
        self,
        slices: Sequence[SliceNumerics],
        layers: Collection[int] = (),
        *,
        apart: bool = False,
    ) -> None:
        self._slices, self.apart = slices, apart
        self._places = [n for n, one in enumerate(slices) if one.part.layer.index in layers]
        self._arrived = dict[int, list[Arrived]]()
        self._chosen = set[int]()

    def __bool__(self) -> bool:
        return bool(self._places)

    def choose(self, index: int) -> None:
        """Let features of a micro-batch be recomputed; without R of its own, those of all are."""
        self._chosen.add(index)

    def _has(self, index: int, place: int) -> bool:
        return place in self._places and (not self.apart or index in self._chosen)

    def keep(self, index: int, place: int, held: Mapping[int, Data], partial: Data | None) -> None:
        """Keep what a slice takes in of a micro-batch, copied, as F may overwrite it."""
        if not self._has(index, place):
            return
        is_first = place - 1 not in self._places
        first = {number: maps.copy() for number, maps in held.items()} if is_first else {}
        sums = None if partial is None else partial.copy()
        self._arrived.setdefault(index, []).append(Arrived(place, first, sums))

    def forget(self, index: int, place: int) -> None:
        """Let go the features of a slice once F has done it."""
        if self._has(index, place):
            self._slices[place].forget(index)

    def take(self, index: int) -> Iterator[Arrived]:
        """Yield what was kept of a micro-batch, slice by slice, and let it go."""
        self._chosen.discard(index)
        yield from self._arrived.pop(index, ())
