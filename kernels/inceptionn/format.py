"""The bytes of INCEPTIONN's format, as tables (see `inceptionn.py`)."""

from __future__ import annotations

import numpy as np

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
_FOUR = [[tags >> 2 * value & 3 for value in range(4)] for tags in range(256)]
_BYTES_OF = ((), (1,), (0, 1), (0, 1, 2, 3))  # of a lane, for each tag

LENGTHS = np.array([sum(WIDTHS[tag] for tag in tags) for tags in _FOUR], np.uint8)
"""The bytes of four payloads, for each byte of tags."""
TALLIES = np.array([[tags.count(tag) for tag in range(4)] for tags in _FOUR])
"""The number of values with each tag, for each byte of tags."""
SPREAD = np.array([sum((mask >> bit & 1) << 2 * bit for bit in range(BURST)) for mask in range(256)], np.uint16)
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
