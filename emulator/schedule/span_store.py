"""A store for arrays of micro-batches, which are put and read in spans of samples.

A micro-batch that is put as a whole is kept without a copy. One that is put in spans is assembled, and may be read in
other spans.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .action import SampleSpan

Arrays = NDArray[Any]


class SpanStore:
    """Arrays (samples, …) of micro-batches, several of each; `take` allocates an array of a shape and a type."""

    def __init__(self, take: Callable[[tuple[int, ...], Any], Arrays] = np.empty) -> None:
        self._take = take
        self._held: dict[int, list[Arrays]] = {}

    def __len__(self) -> int:
        """Return the number of micro-batches of which something is held."""
        return len(self._held)

    def room(self, span: SampleSpan, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Return the array to write a span's maps into; `shape` is that of one sample. They are then kept."""
        [room] = self._rooms(span, [(shape, np.float32)])
        return room

    def put(self, span: SampleSpan, *arrays: Arrays) -> None:
        """Keep the arrays of a span."""
        if span.is_whole:
            self._held[span.of.index] = list(arrays)
            return
        for room, maps in zip(self._rooms(span, [(a.shape[1:], a.dtype) for a in arrays]), arrays, strict=True):
            room[...] = maps

    def _rooms(self, span: SampleSpan, forms: list[tuple[tuple[int, ...], Any]]) -> list[Arrays]:
        index, samples = span.of.index, span.of.samples
        if index not in self._held:
            self._held[index] = [self._take((samples, *shape), dtype) for shape, dtype in forms]
        return [held[span.begin : span.end] for held in self._held[index]]

    def read(self, span: SampleSpan) -> list[Arrays]:
        """Return a span of each array that was put; reading the last span frees the micro-batch."""
        index = span.of.index
        held = self._held.pop(index) if span.ends else self._held[index]
        return held if span.is_whole else [maps[span.begin : span.end] for maps in held]
