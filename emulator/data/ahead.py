"""Reading samples in the background, in the order in which a run takes them, a few blocks ahead."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from .lazy import LazyImages

_THREADS = 2  # decoding and resizing leave Python's lock to others
_AHEAD = 4  # blocks beyond the one that is taken from
_BLOCK = 64  # samples at most
_BLOCK_BYTES = 1 << 23


class ReadAhead:
    """Hands out samples by their places in an epoch; what is read and when changes no bits."""

    def __init__(self, images: LazyImages) -> None:
        self._images = images
        self._block = max(1, min(_BLOCK, _BLOCK_BYTES // images.sample_bytes))
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="emuchain-reading")
        self._order: NDArray[np.int64] | None = None
        self._epoch: int | None = None
        self._blocks: dict[int, Future[NDArray[np.uint8]]] = {}

    def take(self, order: NDArray[np.int64], epoch: int | None, span: slice, out: NDArray[np.uint8]) -> None:
        """Copy the samples `order[span]` of an epoch into `out` (n, c, h, w), and begin to read those behind them.

        Raises:
            InputError: an image cannot be read.
        """
        if order is not self._order or epoch != self._epoch:
            self._drop(len(self._blocks) and max(self._blocks) + 1)
            self._order, self._epoch = order, epoch
        first, last = span.start // self._block, (span.stop - 1) // self._block
        self._drop(first)
        for number in range(first, min(last + _AHEAD, (len(order) - 1) // self._block) + 1):
            if number not in self._blocks:
                places = order[number * self._block : (number + 1) * self._block]
                self._blocks[number] = self._threads.submit(self._images.read, places, epoch)
        for number in range(first, last + 1):
            begin, block = number * self._block, self._blocks[number].result()
            low, high = max(span.start, begin), min(span.stop, begin + len(block))
            out[low - span.start : high - span.start] = block[low - begin : high - begin]

    def _drop(self, before: int) -> None:
        """Forget blocks with smaller numbers."""
        for number in [number for number in self._blocks if number < before]:
            self._blocks.pop(number).cancel()
