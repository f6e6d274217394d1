"""The error that codecs raise, and the checks that all of them make."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray


class CodecError(ValueError):
    """Invalid values, bytes or parameters of a codec."""


def values_of(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the values as a flat array in C order. Raise CodecError if `values` is not an array of float32."""
    if not isinstance(values, np.ndarray) or values.dtype != np.float32:
        raise CodecError(f"values must be an array of float32, not {_kind(values)}")
    return np.ascontiguousarray(values).reshape(-1)


Buffer: TypeAlias = NDArray[np.uint8] | bytes | bytearray


def opened(buffer: Buffer, count: int) -> tuple[NDArray[np.uint8], int]:
    """Return the bytes as a flat array, and the count as an int. Raise CodecError if either is not valid."""
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
