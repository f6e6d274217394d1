"""Memory in huge pages, where the system has such pages.

In pages of 4 KiB, looking up addresses takes time, and addresses that follow one another lie at random places of the
second-level cache: of arrays that just fit in it, each pass then evicts a part. NumPy asks for pages of 2 MiB for
arrays of 4 MiB and more; most maps of a micro-batch are smaller.
"""

from __future__ import annotations

import contextlib
import mmap

import numpy as np
from numpy.typing import NDArray

PAGE = 2 << 20
_SLAB = 8 * PAGE
_LARGE = 2 * PAGE
"""Arrays from here on have memory of their own."""
ALIGNMENT = 64  # bytes: a cache line, and the widest vector


def in_huge_pages(size: int) -> NDArray[np.uint8]:
    """Return `size` new bytes that begin on a huge page; what is not touched takes no memory."""
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    memory = mmap.mmap(-1, size + PAGE, **private)  # shared memory, the default, has other pages
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
    numbers = np.frombuffer(memory, np.uint8)
    begin = -numbers.ctypes.data % PAGE
    return numbers[begin : begin + size]


def aligned(size: int) -> NDArray[np.uint8]:
    """Return `size` new bytes that start on a cache line."""
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]


class Slabs:
    """Cuts arrays that stay from slabs of huge pages, one after another."""

    def __init__(self) -> None:
        self._left = np.empty(0, np.uint8)

    def take(self, size: int) -> NDArray[np.uint8]:
        """Return `size` new bytes that start on a cache line."""
        if size >= _LARGE:
            return aligned(size)
        room = -(-size // ALIGNMENT) * ALIGNMENT
        if room > self._left.size:
            self._left = in_huge_pages(_SLAB)
        found, self._left = self._left[:size], self._left[room:]
        return found
