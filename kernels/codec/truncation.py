"""Truncation: the least significant bits of every float32 number are dropped.

What INCEPTIONN is compared with (Li et al., MICRO 2018, Figs. 4, 7 and 14, "xb-T"): 16 or 22 bits of the mantissa, or
with 24 its 23 bits and the last one of the exponent. What remains is packed tightly: value i's n bits are bits n i to
n i + n - 1 of the buffer, its bytes being little-endian; unused bits of the last byte are 0.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ..buffers import Buffer, CodecError, is_integer, opened, values_of

Count = TypeVar("Count", int, NDArray[np.int64])

DROPPED = (16, 22, 24)
_GROUP = 4  # values whose bits are whole bytes, and at most 64


def check(bits: int) -> None:
    """Raise CodecError if so many bits cannot be dropped."""
    if not is_integer(bits) or bits not in DROPPED:
        raise CodecError(f"truncation drops {', '.join(map(str, DROPPED[:-1]))} or {DROPPED[-1]} bits, not {bits!r}")


def compress(values: NDArray[np.float32], bits: int) -> NDArray[np.uint8]:
    """Drop so many bits of each value of an array of float32 numbers.

    Raises:
        CodecError: the array is not of float32, or so many bits cannot be dropped.
    """
    check(bits)
    flat, left = values_of(values), 32 - bits
    words = np.zeros((-(-flat.size // _GROUP), _GROUP), np.uint64)
    words.reshape(-1)[: flat.size] = flat.view(np.uint32) >> np.uint32(bits)
    groups = np.bitwise_or.reduce(words << _places(left), axis=1).astype("<u8")
    whole_bytes = groups.view(np.uint8).reshape(-1, 8)[:, : left * _GROUP // 8]
    return whole_bytes.reshape(-1)[: made_bytes(flat.size, bits)].copy()


def decompress(buffer: Buffer, count: int, bits: int) -> NDArray[np.float32]:
    """The `count` values of a buffer, their dropped bits 0.

    Raises:
        CodecError: the buffer is not of bytes, has another size, or has unused bits that are set; or no buffer has so
            many values, or so many bits cannot be dropped.
    """
    check(bits)
    (data, count), left = opened(buffer, count), 32 - bits
    size = made_bytes(count, bits)
    if data.size != size:
        raise CodecError(f"{count} values of {left} bits are {size} bytes, but the buffer has {data.size}")
    if count * left % 8 and data[-1] >> count * left % 8:
        raise CodecError("the last byte has bits set that belong to no value")
    groups = np.zeros((-(-count // _GROUP), 8), np.uint8)
    whole_bytes = np.zeros((len(groups), left * _GROUP // 8), np.uint8)
    whole_bytes.reshape(-1)[: data.size] = data
    groups[:, : whole_bytes.shape[1]] = whole_bytes
    words = groups.view("<u8") >> _places(left) & np.uint64((1 << left) - 1)
    return (words.reshape(-1)[:count].astype(np.uint32) << np.uint32(bits)).view(np.float32)


def made_bytes(count: Count, bits: int) -> Count:
    """The bytes of so many values of which so many bits are dropped; of one buffer or of many."""
    return -(-count * (32 - bits) // 8)


def _places(left: int) -> NDArray[np.uint64]:
    return np.arange(0, _GROUP * left, left, dtype=np.uint64)
