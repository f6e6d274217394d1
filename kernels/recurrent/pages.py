"""Memory in huge pages for what a whole layer reads again at each step: packed weights, and the tape.

In pages of 4 KiB, addresses that follow one another lie at random places of the second-level cache: of weights that
just fit in it, each step then evicts a part. In pages of 2 MiB they fit, and cost no look-ups of addresses either.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import mmap

import numpy as np

from ..jit import FLOAT_BYTES, Floats

_PAGE = 2 << 20
_MOST_KEPT = 4  # blocks: a training step takes the memory that the one before it has left


class Block:
    """Memory with undefined contents, which others use again when the block is gone."""

    __slots__ = ("_shelf", "floats")

    def __init__(self, floats: Floats, shelf: collections.deque[Floats]) -> None:
        self.floats, self._shelf = floats, shelf

    def __del__(self) -> None:
        self._shelf.append(self.floats)


def take_block(count: int) -> Block:
    """Return a block of at least `count` floats."""
    shelf = _shelf()
    size = max(1, -(-count * FLOAT_BYTES // _PAGE)) * _PAGE // FLOAT_BYTES
    for _ in range(len(shelf)):
        with contextlib.suppress(IndexError):  # another thread may have taken it
            floats = shelf.pop()
            if floats.size == size:
                return Block(floats, shelf)
            shelf.appendleft(floats)
    return Block(_allocated(size), shelf)


@functools.cache
def _shelf() -> collections.deque[Floats]:
    return collections.deque(maxlen=_MOST_KEPT)


def _allocated(size: int) -> Floats:
    """Return `size` floats that begin on a huge page, where the system has such pages."""
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    memory = mmap.mmap(-1, size * FLOAT_BYTES + _PAGE, **private)  # shared memory, the default, has other pages
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
    numbers = np.frombuffer(memory, np.float32)
    begin = -numbers.ctypes.data % _PAGE // FLOAT_BYTES
    return numbers[begin : begin + size]
