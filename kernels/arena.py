"""Arrays whose memory is reused.

Large arrays from the operating system cost a page fault for every 4 KiB, at every allocation. An arena keeps the memory
of arrays that are no longer referenced, and reuses it for arrays of the same size; so a training step that is like the
one before takes nothing from the system. When an array and all its views are gone, its memory returns by itself.
"""

from __future__ import annotations

import collections
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .pages import Slabs

_Held = tuple[NDArray[np.uint8], int]  # memory, and its address, which is slow to look up


class _Lease:
    """Owns the memory of one array; NumPy keeps it alive as the array's base."""

    __slots__ = ("__array_interface__", "_held", "_shelf")

    def __init__(self, held: _Held, shelf: list[_Held], form: dict[str, object]) -> None:
        self._held, self._shelf, self.__array_interface__ = held, shelf, form

    def __del__(self) -> None:
        self._shelf.append(self._held)


class Arena:
    """Hands out arrays with undefined contents."""

    def __init__(self) -> None:
        self._shelves: dict[int, list[_Held]] = collections.defaultdict(list)
        self._slabs = Slabs()
        self._kinds: dict[tuple[tuple[int, ...], Any], tuple[int, str]] = {}

    def take(self, shape: tuple[int, ...], dtype: Any = np.float32) -> NDArray[Any]:
        """Return a C-contiguous array that starts on a cache line."""
        if (shape, dtype) not in self._kinds:
            kind = np.dtype(dtype)
            self._kinds[shape, dtype] = max(1, math.prod(shape)) * kind.itemsize, kind.str
        size, name = self._kinds[shape, dtype]
        shelf = self._shelves[size]
        held = shelf.pop() if shelf else _hold(self._slabs.take(size))
        return np.asarray(
            _Lease(held, shelf, {"version": 3, "typestr": name, "shape": shape, "data": (held[1], False)})
        )


def _hold(memory: NDArray[np.uint8]) -> _Held:
    return memory, memory.ctypes.data
