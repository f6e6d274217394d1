"""Arrays from memory that is used again and again.

Large arrays from the operating system cost a page fault for every 4 KiB, each time. An arena keeps the memory of
arrays that nobody refers to any more, and hands it out again for the same size; so a training step that is like the
one before takes nothing from the system. When an array and all views of it are gone, its memory is back by itself.
"""

from __future__ import annotations

import collections
import math
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

ALIGNMENT = 64  # bytes: a cache line, and the widest vector


class _Lease:
    """Owns the memory of one array; numpy keeps it alive as the array's base."""

    __slots__ = ("__array_interface__", "_memory", "_shelf")

    def __init__(self, memory: NDArray[np.uint8], shelf: list[NDArray[np.uint8]], form: dict[str, object]) -> None:
        self._memory, self._shelf, self.__array_interface__ = memory, shelf, form

    def __del__(self) -> None:
        self._shelf.append(self._memory)


class Arena:
    """Hands out arrays; their contents are whatever was there before."""

    def __init__(self) -> None:
        self._shelves: dict[int, list[NDArray[np.uint8]]] = collections.defaultdict(list)

    def take(self, shape: tuple[int, ...], dtype: DTypeLike = np.float32) -> NDArray[Any]:
        """A C-contiguous array that starts on a cache line."""
        kind = np.dtype(dtype)
        size = max(1, math.prod(shape)) * kind.itemsize
        shelf = self._shelves[size]
        memory = shelf.pop() if shelf else aligned(size)
        form = {"version": 3, "typestr": kind.str, "shape": shape, "data": (memory.ctypes.data, False)}
        return np.asarray(_Lease(memory, shelf, form))


def aligned(size: int) -> NDArray[np.uint8]:
    """New bytes that start on a cache line."""
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]
