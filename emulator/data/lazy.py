"""Images that are read when they are needed, and never all at once; in the background, a few blocks
ahead of a run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .reading import Preparation, Size, draws_of


class Images(Protocol):
    """Images (N, c, h, w), uint8, or values of another type: an array, or `LazyImages`."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of a value."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(N, c, h, w)."""

    def __len__(self) -> int: ...

    def __getitem__(self, places: Any, /) -> Any: ...

    def __array__(self) -> NDArray[Any]: ...


class Pictures(Protocol):
    """Pictures by number, as they are stored; any thread may read them."""

    @property
    def channels(self) -> int:
        """Channels of each: 1 or 3, or any number where they come from an array."""

    @property
    def sizes(self) -> Mapping[Size, str]:
        """The sizes that occur, each with the name of a picture that has it."""

    def __len__(self) -> int: ...

    def picture(self, number: int) -> NDArray[Any]:
        """Return a picture (rows, columns, channels).

        Raises:
            InputError: it cannot be read.
        """


@dataclasses.dataclass(frozen=True, eq=False)
class LazyImages:
    """Samples made of pictures: those with `numbers`, in this order; with `seed`, augmentation is
    drawn.

    A slice of them is another `LazyImages`; a number, or an array of them, reads: (c, h, w), or (n,
    c, h, w).
    """

    pictures: Pictures
    preparation: Preparation
    size: Size
    numbers: NDArray[np.int64]
    seed: int | None = None
    kind: type[np.generic] = np.uint8

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of a value."""
        return np.dtype(self.kind)

    @property
    def shape(self) -> tuple[int, ...]:
        """(N, c, h, w)."""
        return len(self.numbers), self.pictures.channels, *self.size

    @property
    def sample_bytes(self) -> int:
        """Bytes of one sample."""
        return self.pictures.channels * self.size[0] * self.size[1] * self.dtype.itemsize

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, places: Any, /) -> Any:
        if isinstance(places, slice):
            return dataclasses.replace(self, numbers=self.numbers[places])
        images = self.read(np.atleast_1d(places))
        return images[0] if np.ndim(places) == 0 else images

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        images = self.read(np.arange(len(self)))
        return images if dtype is None else images.astype(dtype)

    def read(self, places: NDArray[np.integer[Any]], epoch: int | None = None) -> NDArray[Any]:
        """Return the samples at these places, augmented as in an epoch, or not.

        Raises:
            InputError: a picture cannot be read, or is no longer what it was.
        """
        out = np.empty((len(places), *self.shape[1:]), self.dtype)
        draws = None
        if epoch is not None and self.seed is not None and self.preparation.augment:
            # For all pictures, by number: what one gets does not depend on the others read here.
            draws = draws_of(self.seed, epoch, len(self.pictures))
        for pixels, number in zip(out, self.numbers[places].tolist(), strict=True):
            draw = None if draws is None else tuple(draws[number].tolist())
            made = self.preparation.apply(self.pictures.picture(number), draw)
            pixels[...] = made.transpose(2, 0, 1)
        return out


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
        self._blocks: dict[int, Future[NDArray[Any]]] = {}

    def take(
        self, order: NDArray[np.int64], epoch: int | None, span: slice, out: NDArray[Any]
    ) -> None:
        """Copy the samples `order[span]` of an epoch into `out` (n, c, h, w), and begin to read
        those behind them.

        Raises:
            InputError: an image cannot be read.
        """
        if order is not self._order or epoch != self._epoch:
            # Blocks of another order are of no use: all go, up to the one of the largest number.
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
