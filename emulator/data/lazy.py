"""Images that are read when they are needed, and never all at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .prepare import Preparation, Size, draws_of


class Images(Protocol):
    """Images (N, c, h, w), uint8: an array, or `LazyImages`."""

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

    def picture(self, number: int) -> NDArray[np.uint8]:
        """Return a picture (rows, columns, channels).

        Raises:
            InputError: it cannot be read.
        """


@dataclasses.dataclass(frozen=True, eq=False)
class LazyImages:
    """Samples made of pictures: those with `numbers`, in this order; with `seed`, augmentation is drawn.

    A slice of them is another `LazyImages`; a number, or an array of them, reads: (c, h, w), or (n, c, h, w).
    """

    pictures: Pictures
    preparation: Preparation
    size: Size
    numbers: NDArray[np.int64]
    seed: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """(N, c, h, w)."""
        return len(self.numbers), self.pictures.channels, *self.size

    @property
    def sample_bytes(self) -> int:
        """Bytes of one sample."""
        return self.pictures.channels * self.size[0] * self.size[1]

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, places: Any, /) -> Any:
        if isinstance(places, slice):
            return dataclasses.replace(self, numbers=self.numbers[places])
        found = self.read(np.atleast_1d(places))
        return found[0] if np.ndim(places) == 0 else found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        found = self.read(np.arange(len(self)))
        return found if dtype is None else found.astype(dtype)

    def read(self, places: NDArray[np.integer[Any]], epoch: int | None = None) -> NDArray[np.uint8]:
        """Return the samples at these places, augmented as in an epoch, or not.

        Raises:
            InputError: a picture cannot be read, or is no longer what it was.
        """
        out = np.empty((len(places), *self.shape[1:]), np.uint8)
        draws = None
        if epoch is not None and self.seed is not None and self.preparation.augment:
            draws = draws_of(self.seed, epoch, len(self.pictures))
        for pixels, number in zip(out, self.numbers[places].tolist(), strict=True):
            draw = None if draws is None else tuple(draws[number].tolist())
            made = self.preparation.apply(self.pictures.picture(number), draw)
            pixels[...] = made.transpose(2, 0, 1)
        return out
