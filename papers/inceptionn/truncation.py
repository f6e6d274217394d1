"""Truncation: the least significant bits of every float32 number are dropped.

The baseline of INCEPTIONN (Li et al., MICRO 2018, Figs. 4, 7 and 14, "xb-T"). It drops 16 or 22
bits of the mantissa, or with 24 its 23 bits and the last one of the exponent. The remaining bits
are packed tightly: value i's n bits are bits n i to n i + n - 1 of the buffer, whose bytes are
little-endian; unused bits of the last byte are 0.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from ...kernels import CodecError
from ...kernels.codec import Codec, parsed_number
from ...kernels.inceptionn import Buffer, is_integer, opened, values_of
from ...kernels.number import Count

DROPPED = (16, 22, 24)
_GROUP = 4  # values that are packed together, into whole bytes and at most 64 bits


def check(bits: int) -> None:
    """Raise CodecError if truncation cannot drop this number of bits."""
    if not is_integer(bits) or bits not in DROPPED:
        raise CodecError(
            f"truncation drops {', '.join(map(str, DROPPED[:-1]))} or {DROPPED[-1]} bits, not"
            f" {bits!r}"
        )


@dataclasses.dataclass(frozen=True)
class Truncation(Codec):
    """Drops the `bits` least significant bits: 16, 22 or 24, else CodecError."""

    bits: int

    kinds = ("truncate",)
    spelling = "truncate:16, :22 and :24"

    def __post_init__(self) -> None:
        check(self.bits)

    @classmethod
    def parse(cls, kind: str, argument: str) -> Codec:
        """See `Codec`."""
        return cls(parsed_number(argument))

    def compress(self, values: NDArray[np.float32]) -> NDArray[np.uint8]:
        """See `Codec`."""
        flat, left = values_of(values), 32 - self.bits
        words = np.zeros((-(-flat.size // _GROUP), _GROUP), np.uint64)
        words.reshape(-1)[: flat.size] = flat.view(np.uint32) >> np.uint32(self.bits)
        # Little-endian on every machine, so that the first value is in the lowest bits of the first
        # byte.
        groups = np.bitwise_or.reduce(words << _places(left), axis=1).astype("<u8")
        whole_bytes = groups.view(np.uint8).reshape(-1, 8)[:, : left * _GROUP // 8]
        return whole_bytes.reshape(-1)[: self.largest_bytes(flat.size)].copy()

    def decompress(self, buffer: Buffer, count: int) -> NDArray[np.float32]:
        """See `Codec`; dropped bits are 0. Unused bits of the last byte must not be set."""
        (data, count), left = opened(buffer, count), 32 - self.bits
        size = self.largest_bytes(count)
        if data.size != size:
            raise CodecError(
                f"{count} values of {left} bits are {size} bytes, but the buffer has {data.size}"
            )
        if count * left % 8 and data[-1] >> count * left % 8:
            raise CodecError("the last byte has bits set that belong to no value")
        groups = np.zeros((-(-count // _GROUP), 8), np.uint8)
        whole_bytes = np.zeros((len(groups), left * _GROUP // 8), np.uint8)
        whole_bytes.reshape(-1)[: data.size] = data
        groups[:, : whole_bytes.shape[1]] = whole_bytes
        words = groups.view("<u8") >> _places(left) & np.uint64((1 << left) - 1)
        return (words.reshape(-1)[:count].astype(np.uint32) << np.uint32(self.bits)).view(
            np.float32
        )

    def largest_bytes(self, count: int) -> int:
        """See `Codec`; exact."""
        return self.expected_bytes(count)

    def expected_bytes(self, count: Count) -> Count:
        """See `Codec`; exact."""
        return -(-count * (32 - self.bits) // 8)

    def __str__(self) -> str:
        return f"truncate:{self.bits}"


def _places(left: int) -> NDArray[np.uint64]:
    return np.arange(0, _GROUP * left, left, dtype=np.uint64)
