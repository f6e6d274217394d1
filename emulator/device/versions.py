"""An array for each version of a device's weights; older versions are kept while actions still need them.

The schedule determines which ones (`schedule/versions.py`); usually there is one, which updates overwrite. All are from
an arena, so that a new version takes the memory of one that is gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ...kernels import Arena

Data = NDArray[np.float32]
Arrays = Mapping[str, Data]
"""What training keeps of one parameter, by name and all of one shape: its value, and what its updates remember."""


class Versions:
    """The versions of one array in memory from an arena; version 0 is `first`."""

    def __init__(self, first: Data, arena: Arena) -> None:
        self._arena = arena
        self._held = {0: first}
        self._newest = 0

    def __len__(self) -> int:
        """Return the number of versions that are kept."""
        return len(self._held)

    def __getitem__(self, version: int) -> Data:
        return self._held[version]

    @property
    def newest(self) -> Data:
        """The array after the last update."""
        return self._held[self._newest]

    def advance(self, *, keeps: bool) -> Data:
        """Begin the next version and return its array: the newest one's, or a copy of it if `keeps`."""
        before = self.newest
        following = copied(before, self._arena) if keeps else before
        if not keeps:
            del self._held[self._newest]
        self._newest += 1
        self._held[self._newest] = following
        return following

    def free(self, versions: Sequence[int]) -> None:
        """Drop versions after their last use."""
        for version in versions:
            del self._held[version]

    def begin_epoch(self) -> None:
        """Renumber the versions: the newest becomes 0."""
        self._held, self._newest = {0: self.newest}, 0

    def state(self) -> Arrays:
        """Return the training state, copied: the value; call only when there is one version."""
        return {"value": self.newest.copy()}

    def restore(self, state: Arrays) -> None:
        """Restore what `state` returned."""
        self.newest[...] = state["value"]


def copied(array: Data, arena: Arena) -> Data:
    """Return a copy in memory from an arena."""
    copy: Data = arena.take(array.shape)
    copy[...] = array
    return copy


def zeros_like(array: Data, arena: Arena) -> Data:
    """Return zeros of the same shape in memory from an arena."""
    zeros: Data = arena.take(array.shape)
    zeros[...] = 0
    return zeros
