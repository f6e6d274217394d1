"""Images that are the items of an array, in memory or read one by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...common import InputError
from ..reading import Size

_FEW = (1, 3)  # channels that an axis is known by


class Samples(Protocol):
    """An array in a file, or in memory, whose items are read one by one."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of all items."""

    def __getitem__(self, number: int, /) -> Any: ...


@dataclass(frozen=True, eq=False)
class ArrayPictures:
    """Pictures that are the items of an array: (N, rows, columns), with channels behind the number
    or at the end.
    """

    samples: Samples
    channels: int
    sizes: Mapping[Size, str]
    channels_last: bool = False

    @classmethod
    def of(
        cls, samples: Samples, name: str, where: str, channels: str | None = None
    ) -> ArrayPictures:
        """Return the pictures of an array that is called `name`, whose `channels` come "first" or
        "last".

        Raises:
            InputError: its shape is not one of images; or it does not tell where channels are, and
                nor does `channels`.
        """
        shape = tuple(samples.shape)
        if len(shape) not in (3, 4) or 0 in shape:
            raise InputError(
                f"{where}: `{name}` has shape {shape}; should be (N, rows, columns), (N, rows,"
                " columns, channels) or (N, channels, rows, columns)"
            )
        if len(shape) == 3:
            return cls(samples, 1, {(shape[1], shape[2]): name})
        # Both axes could be channels, or neither.
        if channels is None and (shape[1] in _FEW) == (shape[3] in _FEW):
            (one, *map_of_one), (*map_of_other, other) = shape[1:], shape[1:]
            ways = (
                f"{one} of {map_of_one[0]}x{map_of_one[1]}, or last, {other} of"
                f" {map_of_other[0]}x{map_of_other[1]}"
            )
            raise InputError(
                f"{where}: `{name}` has shape {shape}: channels may come first, {ways}; say which"
                " by `channels`, as --channels last"
            )
        last = channels == "last" if channels is not None else shape[3] in _FEW
        size = (shape[1], shape[2]) if last else (shape[2], shape[3])
        return cls(samples, shape[3] if last else shape[1], {size: name}, last)

    def __len__(self) -> int:
        return int(self.samples.shape[0])

    def picture(self, number: int) -> NDArray[np.uint8]:
        """See `Pictures`."""
        item: NDArray[np.uint8] = self.samples[number]
        if item.ndim == 2:
            return item[:, :, None]
        return item if self.channels_last else item.transpose(1, 2, 0)
