"""Counts of what a device has rounded, and of weights that updates left as they were."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ..number import KINDS

COUNTED = "values", "saturated", "flushed"
"""What is counted of each kind of numbers."""


class RoundingTally:
    """What a device has rounded: by kind the values, those beyond the largest, and those that became zero.

    Of weights also how many were updated, and how many of them an update left as they were.
    """

    def __init__(self) -> None:
        self._counts = {kind: np.zeros(3, np.int64) for kind in KINDS}
        self._updated = self._unmoved = 0

    def of_kind(self, kind: str, values: int) -> NDArray[np.int64]:
        """Count values of a kind; return the two counts that their rounding adds to."""
        self._counts[kind][0] += values
        return self._counts[kind][1:]

    def update(self, weights: int, unmoved: int) -> None:
        """Count weights of an update."""
        self._updated += weights
        self._unmoved += unmoved

    def counts(self) -> dict[str, int]:
        """Return all counts by name."""
        names = itertools.product(KINDS, COUNTED)
        counts = (count for kind in KINDS for count in self._counts[kind].tolist())
        moves = {"weights_updated": self._updated, "weights_unmoved": self._unmoved}
        return {**{f"{kind}_{what}": count for (kind, what), count in zip(names, counts, strict=True)}, **moves}

    def take(self) -> dict[str, int]:
        """Return all counts by name, and begin anew."""
        counts = self.counts()
        self.restore({})
        return counts

    def restore(self, counts: Mapping[str, int]) -> None:
        """Restore what `counts` returned; what is missing is 0."""
        for kind in KINDS:
            self._counts[kind][:] = [counts.get(f"{kind}_{what}", 0) for what in COUNTED]
        self._updated, self._unmoved = (counts.get(f"weights_{what}", 0) for what in ("updated", "unmoved"))
