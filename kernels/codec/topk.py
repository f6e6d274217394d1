"""Sparsification: the values of a message with the largest magnitudes (Aji and Heafield, EMNLP
2017).

A message of n values keeps k = ceil(share * n) of them; the others become zeros. Its bytes are k
places (uint32), then k values (float32), both in the order of places. Dropped values are lost,
unless the sender keeps them for its next message (`error_feedback`, `comm/exchange/nic.py`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ..inceptionn.format import Buffer, CodecError, opened, values_of
from ..number import FP32, Count
from .codec import Codec

_ENTRY_BYTES = 4 + FP32.bytes_of(1)


@dataclasses.dataclass(frozen=True)
class TopK(Codec):
    """Keeps the `share` of values with the largest magnitudes: of equal ones the first, and a NaN
    before all.

    Raises:
        CodecError: `share` is not above 0 and at most 1.
    """

    share: float

    kinds = ("topk",)
    spelling = "topk:S for the share S of largest values"

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise CodecError(
                f"the share of values must be above 0 and at most 1, not {self.share:g}"
            )

    @classmethod
    def parse(cls, kind: str, argument: str) -> Codec:
        """See `Codec`."""
        try:
            share = float(argument)
        except ValueError:
            raise CodecError(f"expected a share such as 0.01, not {argument!r}") from None
        return cls(share)

    def kept(self, count: Count) -> Count:
        """Return the number of values kept of `count`."""
        kept = np.ceil(np.asarray(count) * self.share).astype(np.int64)
        return kept if isinstance(count, np.ndarray) else int(kept)

    def compress(self, values: NDArray[np.float32]) -> NDArray[np.uint8]:
        """See `Codec`."""
        plain = values_of(values)
        size = np.abs(plain)
        size[np.isnan(plain)] = math.inf
        places = np.sort(np.argsort(-size, kind="stable")[: self.kept(plain.size)]).astype(
            np.uint32
        )
        return np.concatenate([places.view(np.uint8), plain[places].view(np.uint8)])

    def decompress(self, buffer: Buffer, count: int) -> NDArray[np.float32]:
        """See `Codec`."""
        data, count = opened(buffer, count)
        kept = self.kept(count)
        if data.size != _ENTRY_BYTES * kept:
            raise CodecError(
                f"{count} values are {_ENTRY_BYTES * kept} bytes, but the buffer has {data.size}"
            )
        places, largest = (
            data[: data.size // 2].copy().view(np.uint32),
            data[data.size // 2 :].copy().view(np.float32),
        )
        if kept and places.max() >= count:
            raise CodecError(
                f"the buffer has a value at place {places.max()}, but only {count} values"
            )
        values = np.zeros(count, np.float32)
        values[places] = largest
        return values

    def largest_bytes(self, count: int) -> int:
        """See `Codec`."""
        return _ENTRY_BYTES * self.kept(count)

    def expected_bytes(self, count: Count) -> Count:
        """See `Codec`."""
        return _ENTRY_BYTES * self.kept(count)

    def statistics(self, buffer: Buffer, count: int) -> Mapping[str, int]:
        """Return the number of values, and the number of those that were kept."""
        return {"values": count, "kept_values": self.kept(count)}

    def __str__(self) -> str:
        return f"topk:{self.share:g}"
