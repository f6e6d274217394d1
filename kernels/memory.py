"""Memory of arrays: in huge pages, where the system has such pages, on cache lines, and used again.

In pages of 4 KiB, looking up addresses takes time, and addresses that follow one another lie at
random places of the second-level cache: of arrays that just fit in it, each pass then evicts a
part. NumPy asks for pages of 2 MiB for arrays of 4 MiB and more; most maps of a micro-batch are
smaller.

Large arrays from the operating system cost a page fault for every 4 KiB, at every allocation. An
arena keeps the memory of arrays that are no longer referenced, and reuses it for arrays of the same
size; so a training step that is like the one before takes nothing from the system. When an array
and all its views are gone, its memory returns by itself.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import math
import mmap
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .jit import FLOAT_BYTES, address_of

PAGE = 2 << 20
_SLAB = 8 * PAGE
_LARGE = 2 * PAGE
"""Arrays from here on have memory of their own."""
ALIGNMENT = 64  # bytes: a cache line, and the widest vector


def in_huge_pages(size: int) -> NDArray[np.uint8]:
    """Return `size` new bytes that begin on a huge page; what is not touched takes no memory."""
    private = (
        {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    )
    # A page more, of which the part before the first boundary stays untouched.
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
            # What is left of the slab before, less than `_LARGE`, is given up.
            self._left = in_huge_pages(_SLAB)
        taken, self._left = self._left[:size], self._left[room:]
        return taken


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
            # An empty array has an item, too: it needs an address.
            self._kinds[shape, dtype] = max(1, math.prod(shape)) * kind.itemsize, kind.str
        size, name = self._kinds[shape, dtype]
        shelf = self._shelves[size]
        held = shelf.pop() if shelf else _hold(self._slabs.take(size))
        return np.asarray(
            _Lease(
                held,
                shelf,
                {"version": 3, "typestr": name, "shape": shape, "data": (held[1], False)},
            )
        )


def _hold(memory: NDArray[np.uint8]) -> _Held:
    return memory, memory.ctypes.data


class _Memory(threading.local):
    """An arena for each thread."""

    def __init__(self) -> None:
        self.arena = Arena()


_memory = _Memory()


def new(*shape: int, cleared: bool = False) -> NDArray[np.float32]:
    """Return an array that starts on a cache line, of zeros where `cleared`; its memory is used
    again.
    """
    made: NDArray[np.float32] = _memory.arena.take(shape)
    if cleared:
        made.fill(0)
    return made


def spare(*sizes: int) -> tuple[NDArray[np.float32], tuple[int, ...]]:
    """Return memory for arrays of some sizes, which must be kept while they are used, and their
    addresses.
    """
    line = ALIGNMENT // FLOAT_BYTES
    ends = list(itertools.accumulate((-(-size // line) * line for size in sizes), initial=0))
    memory = new(ends[-1])
    place = address_of(memory)
    return memory, tuple(place + FLOAT_BYTES * end for end in ends[:-1])
