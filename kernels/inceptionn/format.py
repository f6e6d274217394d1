"""The bytes of INCEPTIONN's format, as tables (see `inceptionn.py`); and the checks that all codecs
make.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

BURST, LANE_BYTES, TAG_BYTES = 8, 4, 2
WIDTHS = (0, 1, 2, 4)
"""The bytes of a payload, for each tag."""
LONGEST = TAG_BYTES + BURST * LANE_BYTES
"""The greatest length of a burst, in bytes."""
ONE = 0x3F80_0000
"""The bits of 1.0."""
STEP = 2.0**-15
"""The value of the last bit of a 16-bit payload."""

_NONE = 0x80  # marks a byte without a source
_FOUR = [[tags & 3, tags >> 2 & 3, tags >> 4 & 3, tags >> 6] for tags in range(256)]
_BYTES_OF = ((), (1,), (0, 1), (0, 1, 2, 3))  # of a lane, for each tag

LENGTHS = np.take(WIDTHS, _FOUR).sum(axis=1, dtype=np.uint8)
"""The bytes of four payloads, for each byte of tags."""
TALLIES = np.array([list(map(tags.count, range(4))) for tags in _FOUR])
"""The number of values with each tag, for each byte of tags."""
SPREAD = np.array([int(f"{mask:b}", base=4) for mask in range(256)], np.uint16)
"""The bits of a byte with a zero between neighbours, for each byte."""


def _packed(tags: list[int]) -> list[int]:
    """Return for each byte of four payloads its place in their lanes."""
    places = [LANE_BYTES * lane + byte for lane, tag in enumerate(tags) for byte in _BYTES_OF[tag]]
    return places + [_NONE] * (16 - len(places))


def _unpacked(tags: list[int]) -> list[int]:
    """Return for each byte of four lanes its place in their payloads."""
    places = [_NONE] * 16
    for at, place in enumerate(place for place in _packed(tags) if place != _NONE):
        places[place] = at
    return places


PACKED = np.array([_packed(tags) for tags in _FOUR], np.uint8)
UNPACKED = np.array([_unpacked(tags) for tags in _FOUR], np.uint8)


class CodecError(ValueError):
    """Invalid values, bytes or parameters of a codec."""


def values_of(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the values as a flat array in C order. Raise CodecError if `values` is not an array of
    float32.
    """
    if not isinstance(values, np.ndarray) or values.dtype != np.float32:
        raise CodecError(f"values must be an array of float32, not {_kind(values)}")
    return np.ascontiguousarray(values).reshape(-1)


Buffer: TypeAlias = NDArray[np.uint8] | bytes | bytearray


def opened(buffer: Buffer, count: int) -> tuple[NDArray[np.uint8], int]:
    """Return the bytes as a flat array, and the count as an int. Raise CodecError if either is not
    valid.
    """
    if isinstance(buffer, (bytes, bytearray)):
        buffer = np.frombuffer(buffer, np.uint8)
    if not isinstance(buffer, np.ndarray) or buffer.dtype != np.uint8:
        raise CodecError(f"a buffer must be bytes, or an array of uint8, not {_kind(buffer)}")
    if not is_integer(count):
        raise CodecError(f"the count of values must be an integer, not {count!r}")
    if count < 0:
        raise CodecError(f"the count of values must not be negative: {count}")
    return np.ascontiguousarray(buffer).reshape(-1), int(count)


def is_integer(number: object) -> bool:
    """Return whether this is an integer of Python or NumPy, and not a bool."""
    return isinstance(number, (int, np.integer)) and not isinstance(number, bool)


def _kind(given: object) -> str:
    return f"one of {given.dtype}" if isinstance(given, np.ndarray) else f"{type(given).__name__}"
