"""What a device keeps of a micro-batch until later: its activations (Act-RAM), and errors on their way to PG.

A micro-batch that comes as a whole is kept as it is, without a copy. Where it comes in portions, each is put in its
place, and what is asked for later may be portioned otherwise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...kernels.arena import Arena
from ..schedule.action import Portion

Maps = NDArray[Any]


class ActRam:
    """Arrays (samples, …) of micro-batches, several of each, in memory from an arena."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._held: dict[int, list[Maps]] = {}

    def __len__(self) -> int:
        """Of how many micro-batches something is held."""
        return len(self._held)

    def room(self, portion: Portion, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Where to write a portion's maps of such a shape (without samples); they are then kept."""
        [room] = self._rooms(portion, [(shape, np.float32)])
        return room

    def put(self, portion: Portion, *arrays: Maps) -> None:
        """Keep a portion."""
        if portion.is_whole:
            self._held[portion.of.index] = list(arrays)
            return
        for room, maps in zip(self._rooms(portion, [(a.shape[1:], a.dtype) for a in arrays]), arrays, strict=True):
            room[...] = maps

    def _rooms(self, portion: Portion, forms: list[tuple[tuple[int, ...], Any]]) -> list[Maps]:
        index, samples = portion.of.index, portion.of.samples
        if index not in self._held:
            self._held[index] = [self._arena.take((samples, *shape), dtype) for shape, dtype in forms]
        return [held[portion.begin : portion.end] for held in self._held[index]]

    def read(self, portion: Portion) -> list[Maps]:
        """A portion of all that was put; when the last one is read, it is kept no longer."""
        index = portion.of.index
        held = self._held.pop(index) if portion.ends else self._held[index]
        return held if portion.is_whole else [maps[portion.begin : portion.end] for maps in held]
