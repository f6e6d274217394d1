"""Memory in huge pages for what a whole layer reads again at each step: packed weights, and the tape.

In pages of 4 KiB each step evicts a part of weights that just fit into the second-level cache (`kernels/pages.py`).
"""

from __future__ import annotations

import collections
import contextlib
import functools

import numpy as np

from ..jit import FLOAT_BYTES, Floats
from ..pages import PAGE, in_huge_pages

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
    size = max(1, -(-count * FLOAT_BYTES // PAGE)) * PAGE // FLOAT_BYTES
    for _ in range(len(shelf)):
        with contextlib.suppress(IndexError):  # another thread may have taken it
            floats = shelf.pop()
            if floats.size == size:
                return Block(floats, shelf)
            shelf.appendleft(floats)
    return Block(in_huge_pages(size * FLOAT_BYTES).view(np.float32), shelf)


@functools.cache
def _shelf() -> collections.deque[Floats]:
    return collections.deque(maxlen=_MOST_KEPT)
